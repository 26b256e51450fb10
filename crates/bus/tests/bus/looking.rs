//! Read-only views of topics and groups.

use std::time::Duration;

use prombus_bus::{Followed, Follower, Lag, ReadBudget, ReadPage, StartAt, TopicSettings};
use prombus_proto::{ErrorCode, EventId, Group, Key, NewEvent, Seq, Timestamp};

use crate::harness::{
    Harness, NOW, at_most, billing, event, from, ids, large_event, named, orders,
};

fn keyed(key: &str, id: &str, size: usize) -> NewEvent {
    NewEvent {
        key: Some(Key::new(key).unwrap()),
        id: Some(EventId::new(id).unwrap()),
        ..large_event(size)
    }
}

/// The `seq`s of the next events.
async fn next_of(follower: &mut Follower) -> Vec<u64> {
    match follower.page(ReadBudget::of_events(2)).await.unwrap() {
        Followed::Events(events) => events.iter().map(|event| event.seq.0).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_reports_its_cursor_and_lag() {
    let harness = Harness::new();
    let aged = |age: u64| NewEvent { ts: Some(Timestamp(NOW.0 - age)), ..event("1") };
    let events = vec![aged(500), aged(400), aged(300), aged(200)];
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    let consumer = harness.consumer(at_most(3)).await;
    let out = consumer.arrived().await;
    let group = harness.bus.group(&orders(), &billing()).await.unwrap();
    assert_eq!((group.members, group.in_flight), (1, 3));
    assert_eq!(group.lag, Lag { events: 4, ms: 0 }, "by when they were stored, not by their time");
    harness.clock.advance_ms(300);
    consumer.ack(ids(&out[..1])).await;
    consumer.ack(ids(&out[2..])).await;
    let groups = harness.bus.groups_of(&orders()).await.unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].lag, Lag { events: 2, ms: 300 });
    assert_eq!(groups[0].cursor.floor, Seq(1));
    assert_eq!(groups[0].cursor.last_id.as_ref(), Some(&out[0].event.id));
}

#[tokio::test(start_paused = true)]
async fn lists_the_groups_of_a_topic_with_and_without_members() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    harness.publish(&named("orders.eu"), 1).await;
    for (topic, group) in [("orders", "b"), ("orders", "a"), ("orders.eu", "c")] {
        let group = Group::new(group).unwrap();
        let connection = harness.bus.connect();
        harness
            .bus
            .subscribe(&connection, &named(topic), &group, from(StartAt::Earliest))
            .await
            .unwrap();
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    let groups = harness.bus.groups_of(&orders()).await.unwrap();
    let names: Vec<_> = groups.iter().map(|group| group.group.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(groups.iter().all(|group| group.members == 0 && group.lag.events == 2));
    let missing = harness.bus.group(&orders(), &billing()).await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::UnknownGroup);
    let unknown = harness.bus.groups_of(&named("nothing")).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::UnknownTopic);
}

#[tokio::test(start_paused = true)]
async fn lists_groups_and_topics_before_their_first_event() {
    let harness = Harness::new();
    harness.publish(&named("other"), 1).await;
    let missing = harness.bus.group(&orders(), &billing()).await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::UnknownTopic);
    let consumer = harness.consumer(at_most(3)).await;
    assert_eq!(harness.bus.topics().await.unwrap(), [orders(), named("other")]);
    let topic = harness.bus.topic(&orders()).await.unwrap();
    assert_eq!((topic.bounds.first, topic.bounds.next), (Seq(1), Seq(1)));
    let groups = harness.bus.groups_of(&orders()).await.unwrap();
    assert_eq!(groups.len(), 1);
    assert_eq!((&groups[0].group, groups[0].members), (&billing(), 1));
    assert_eq!(groups[0].lag, Lag { events: 0, ms: 0 });
    assert_eq!(harness.bus.group(&orders(), &billing()).await.unwrap().lag, groups[0].lag);
    // There is nothing to read.
    let unread = harness.bus.follow(&orders(), &StartAt::Earliest).await.err().unwrap();
    assert_eq!(unread.code, ErrorCode::UnknownTopic);
    drop(consumer);
}

#[tokio::test(start_paused = true)]
async fn finds_the_latest_event_of_a_key_at_any_distance() {
    let harness = Harness::new();
    let connection = harness.bus.connect();
    let mut events = vec![keyed("rare", "r1", 10), keyed("rare", "r2", 10)];
    events.extend((0..900).map(|n| keyed("common", &format!("c{n}"), 10)));
    // One step spans several pages.
    events.extend((0..8).map(|n| keyed("large", &format!("l{n}"), 400_000)));
    events.push(keyed("common", "last", 10));
    harness.try_publish(&connection, &orders(), events).await.unwrap();
    for (key, id) in [("rare", "r2"), ("common", "last"), ("large", "l7")] {
        let found = harness.bus.latest_by_key(&orders(), &Key::new(key).unwrap()).await.unwrap();
        assert_eq!(found.unwrap().id, EventId::new(id).unwrap(), "{key}");
    }
    let none = harness.bus.latest_by_key(&orders(), &Key::new("none").unwrap()).await.unwrap();
    assert!(none.is_none());
    let unknown =
        harness.bus.latest_by_key(&named("x"), &Key::new("k").unwrap()).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::UnknownTopic);
}

#[tokio::test(start_paused = true)]
async fn a_follower_reads_stored_events_and_then_new_ones() {
    let harness = Harness::new();
    let refusal = harness.bus.follow(&orders(), &StartAt::Latest).await.err().unwrap();
    assert_eq!(refusal.code, ErrorCode::UnknownTopic);
    harness.publish(&orders(), 5).await;
    let mut follower = harness.bus.follow(&orders(), &StartAt::Earliest).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.extend(next_of(&mut follower).await);
    }
    let nothing =
        tokio::time::timeout(Duration::from_secs(60), follower.page(ReadBudget::of_events(2)));
    assert!(nothing.await.is_err());
    harness.publish(&orders(), 3).await;
    while seen.len() < 8 {
        seen.extend(next_of(&mut follower).await);
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Keeps none of the events that `harness` has published so far.
async fn remove_all(harness: &Harness) {
    let rule = TopicSettings { retention_bytes: Some(1), ..TopicSettings::default() };
    harness.bus.configure_topic(&orders(), rule).await.unwrap();
    let bounds = harness.engine.bounds(&orders()).await.unwrap();
    assert_eq!(bounds.first, bounds.next);
    harness.bus.configure_topic(&orders(), TopicSettings::default()).await.unwrap();
}

async fn told_that_events_are_removed(follower: &mut Follower) -> u64 {
    match follower.page(ReadBudget::of_events(2)).await.unwrap() {
        Followed::Removed { next } => next.0,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_is_told_that_its_next_events_are_gone() {
    let harness = Harness::new();
    let [.., last] = &harness.publish(&orders(), 3).await[..] else { panic!() };
    let last = last.clone();
    let mut slow = harness.bus.follow(&orders(), &StartAt::Earliest).await.unwrap();
    assert_eq!(next_of(&mut slow).await, [1, 2]);
    remove_all(&harness).await;
    harness.publish(&orders(), 1).await;
    assert_eq!(told_that_events_are_removed(&mut slow).await, 4);
    assert_eq!(next_of(&mut slow).await, [4]);
    // One that starts after a removed event continues with the first that is kept.
    for id in [last, EventId::new("never-existed").unwrap()] {
        let mut late = harness.bus.follow(&orders(), &StartAt::AfterId(id)).await.unwrap();
        assert_eq!(told_that_events_are_removed(&mut late).await, 4);
        assert_eq!(next_of(&mut late).await, [4]);
    }
    for start in [StartAt::Earliest, StartAt::Seq(Seq(1)), StartAt::Time(Timestamp(0))] {
        let mut follower = harness.bus.follow(&orders(), &start).await.unwrap();
        assert_eq!(next_of(&mut follower).await, [4], "{start:?} misses nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn every_way_to_read_returns_the_committed_bytes() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let mut follower = harness.bus.follow(&orders(), &StartAt::Latest).await.unwrap();
    harness.publish(&orders(), 1).await;
    let mut live = Vec::new();
    let page = follower.page(ReadBudget::of_events(9)).await.unwrap();
    let Followed::Events(events) = page else { panic!("{page:?}") };
    events[0].write_json(&mut live);
    let read = harness.bus.read(&orders(), Seq(2)..Seq(3), ReadBudget::of_events(9)).await.unwrap();
    let ReadPage::Events(read) = read else { panic!("{read:?}") };
    assert_eq!(live, read[0].json);
}
