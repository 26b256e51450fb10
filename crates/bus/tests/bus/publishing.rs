//! Publishing: positions, ids, batches and durability.

use std::collections::HashSet;
use std::iter;
use std::sync::Arc;

use prombus_bus::{PublishBatch, StartAt, TopicSettings};
use prombus_engine::{Durability, Engine};
use prombus_proto::limits::{MAX_EVENT_BYTES, MAX_TS_AHEAD_MS};
use prombus_proto::{ErrorCode, Event, EventId, NewEvent, Seq, Timestamp};

use crate::harness::{
    Harness, NOW, disk, event, from, large_event, memory, named, orders, seqs, stored, unlimited,
};
use crate::watched_engine::WatchedEngine;

fn with_id(id: &str) -> NewEvent {
    NewEvent { id: Some(EventId::new(id).unwrap()), ..event("1") }
}

#[tokio::test(start_paused = true)]
async fn every_topic_has_its_own_positions() {
    let harness = Harness::new();
    let connection = harness.bus.connect();
    for (topic, expected) in [("orders", 1), ("orders", 2), ("payments", 1), ("orders", 3)] {
        let events = vec![event("{}")];
        let positions = harness.try_publish(&connection, &named(topic), events).await.unwrap();
        assert_eq!((positions[0].seq, positions[0].duplicate), (Seq(expected), false));
    }
}

#[tokio::test(start_paused = true)]
async fn the_bus_adds_missing_ids_and_times() {
    let harness = Harness::new();
    let own = NewEvent { ts: Some(Timestamp(5)), ..with_id("mine") };
    let events = vec![event("{\"a\": 1}"), own];
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    let stored = stored(harness.engine.as_ref(), &orders()).await;
    let (seq, first) = Event::decode(&stored[0].json).unwrap();
    assert_eq!((seq, first.ts, first.topic), (Seq(1), NOW, orders()));
    assert_eq!(first.payload.as_bytes(), b"{\"a\": 1}", "the payload is unchanged");
    assert!(first.id.as_uuid().is_some_and(|uuid| uuid.get_version_num() == 7));
    let (_, second) = Event::decode(&stored[1].json).unwrap();
    assert_eq!((second.ts, second.id), (Timestamp(5), EventId::new("mine").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_time_more_than_a_day_ahead_is_refused_by_every_way_to_publish() {
    let harness = Harness::new();
    let (bus, connection) = (&harness.bus, harness.bus.connect());
    let at = |ts| NewEvent { ts: Some(Timestamp(ts)), ..event("1") };
    let latest = NOW.0 + MAX_TS_AHEAD_MS;
    for ts in [latest + 1, u64::MAX] {
        let events = vec![event("0"), at(ts)];
        let mixed = events.iter().map(|event| (orders(), event.clone())).collect();
        let mut batch = PublishBatch::new();
        let refusals = [
            batch.push(bus, &connection, &orders(), events.clone().into_iter()).unwrap_err(),
            batch.push_mixed(bus, &connection, mixed).unwrap_err(),
            batch.push_paced(bus, &connection, &orders(), events).await.unwrap_err(),
            bus.check_ts(&at(ts)).unwrap_err(),
        ];
        for refusal in refusals {
            assert_eq!(refusal.code, ErrorCode::BadFrame);
            assert!(
                refusal.message.starts_with(&format!("ts {ts} is more than a day")),
                "{refusal}"
            );
        }
        assert!(batch.is_empty());
    }
    bus.check_ts(&at(latest)).unwrap();
    harness.try_publish(&connection, &orders(), vec![at(latest), at(0)]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_push_leaves_the_batch_unchanged() {
    let harness = Harness::new();
    let (bus, connection) = (&harness.bus, harness.bus.connect());
    let mut batch = harness.batch(&connection, &orders(), vec![event("1")]).unwrap();
    let more = vec![event("2"), large_event(MAX_EVENT_BYTES)].into_iter();
    let before = batch.bytes();
    let refusal = batch.push(bus, &connection, &orders(), more).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PayloadTooLarge);
    assert_eq!((batch.len(), batch.bytes()), (1, before));
    batch.push(bus, &connection, &named("payments"), iter::once(event("3"))).unwrap();
    batch.push(bus, &connection, &orders(), iter::once(event("4"))).unwrap();
    let positions = batch.submit(bus).await.unwrap().stored().await.unwrap();
    assert_eq!(positions.iter().map(|position| position.seq.0).collect::<Vec<_>>(), [1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn the_same_id_is_stored_once() {
    let harness = Harness::new();
    let connection = harness.bus.connect();
    let consumer = harness.consumer(from(StartAt::Earliest)).await;
    let mut answers = Vec::new();
    for events in [vec![with_id("a"), with_id("b"), with_id("a")], vec![with_id("b"), with_id("c")]]
    {
        let positions = harness.try_publish(&connection, &orders(), events).await.unwrap();
        answers.extend(positions.into_iter().map(|position| (position.seq.0, position.duplicate)));
    }
    assert_eq!(answers, [(1, false), (2, false), (1, true), (2, true), (3, false)]);
    assert_eq!(seqs(&consumer.arrived().await), [1, 2, 3], "duplicates are not delivered");
}

#[tokio::test(start_paused = true)]
async fn a_batch_with_one_bad_event_stores_nothing() {
    let harness = Harness::new();
    let events = vec![event("1"), large_event(MAX_EVENT_BYTES), event("2")];
    let refusal = harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PayloadTooLarge);
    assert!(refusal.message.contains("the limit is 16777216"), "{refusal}");
    assert!(stored(harness.engine.as_ref(), &orders()).await.is_empty());
}

#[tokio::test]
async fn an_oversized_batch_does_not_fail_others() {
    let folder = tempfile::tempdir().unwrap();
    let one_at_a_time: Arc<dyn Engine> = WatchedEngine::for_one_commit(memory());
    // The disk engine refuses it before it completes the commit submitted first.
    for engine in [memory(), one_at_a_time, disk(folder.path())] {
        let harness = Harness::over(engine, unlimited());
        only_the_oversized_batch_is_refused(&harness).await;
        harness.bus.close().await.unwrap();
    }
}

async fn only_the_oversized_batch_is_refused(harness: &Harness) {
    let connection = harness.bus.connect();
    let too_much = (0..3).map(|_| large_event(12 << 20)).collect();
    let too_much = harness.batch(&connection, &orders(), too_much).unwrap();
    let small = || harness.batch(&connection, &orders(), vec![event("1")]).unwrap();
    let mut before = small().submit(&harness.bus).await.unwrap();
    let mut too_much = too_much.submit(&harness.bus).await.unwrap();
    let mut after = small().submit(&harness.bus).await.unwrap();
    assert_eq!(too_much.stored().await.unwrap_err().code, ErrorCode::PayloadTooLarge);
    assert_eq!(before.stored().await.unwrap()[0].seq, Seq(1));
    assert_eq!(after.stored().await.unwrap()[0].seq, Seq(2));
}

#[tokio::test(start_paused = true)]
async fn queued_submissions_are_one_commit_and_get_their_own_positions() {
    let engine = WatchedEngine::for_one_commit(memory());
    each_gets_its_own_positions(&Harness::over(engine.clone(), unlimited())).await;
    assert_eq!(engine.take_commits().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_merges_commits_gets_each_submission_in_order() {
    let engine = WatchedEngine::over(memory());
    each_gets_its_own_positions(&Harness::over(engine.clone(), unlimited())).await;
    let topics: Vec<_> = engine.take_commits().into_iter().map(|commit| commit.topics).collect();
    let (orders, payments) = (orders(), named("payments"));
    assert_eq!(topics, [vec![orders.clone(); 2], vec![payments], vec![orders; 3]]);
}

async fn each_gets_its_own_positions(harness: &Harness) {
    let connection = harness.bus.connect();
    let mut submitted = Vec::new();
    for (topic, count) in [("orders", 2), ("payments", 1), ("orders", 3)] {
        let events = (0..count).map(|_| event("1")).collect();
        let batch = harness.batch(&connection, &named(topic), events).unwrap();
        submitted.push(batch.submit(&harness.bus).await.unwrap());
    }
    let mut answers = Vec::new();
    for submitted in &mut submitted {
        let positions = submitted.stored().await.unwrap();
        answers.push(positions.into_iter().map(|position| position.seq.0).collect::<Vec<_>>());
    }
    assert_eq!(answers, [vec![1, 2], vec![1], vec![3, 4, 5]]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_has_the_strongest_durability_of_its_topics() {
    let buffered =
        TopicSettings { durability: Some(Durability::Buffered), ..TopicSettings::default() };
    let engine = WatchedEngine::for_one_commit(memory());
    let topics = [(orders(), buffered)].into_iter().collect();
    let harness = Harness::over(engine.clone(), prombus_bus::Settings { topics, ..unlimited() });
    let mut seen = Vec::new();
    for topics in [vec!["orders"], vec!["payments"], vec!["orders", "payments"]] {
        let mut submitted = Vec::new();
        for topic in topics {
            let connection = harness.bus.connect();
            let batch = harness.batch(&connection, &named(topic), vec![event("1")]);
            submitted.push(batch.unwrap().submit(&harness.bus).await.unwrap());
        }
        for submitted in &mut submitted {
            submitted.stored().await.unwrap();
        }
        seen.extend(engine.take_commits().into_iter().map(|commit| commit.durability));
    }
    assert_eq!(seen, [Durability::Buffered, Durability::Fsync, Durability::Fsync]);
}

#[tokio::test]
async fn concurrent_publishers_leave_no_gap() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::over(disk(folder.path()), unlimited());
    let topic = orders();
    let published = || harness.publish(&topic, 500);
    let (a, b, c) = tokio::join!(published(), published(), published());
    let all: HashSet<_> = a.into_iter().chain(b).chain(c).collect();
    harness.bus.close().await.unwrap();
    let engine = disk(folder.path());
    let stored = stored(engine.as_ref(), &orders()).await;
    assert_eq!(stored.len(), 1500);
    assert!(stored.iter().zip(1..).all(|(event, seq)| event.seq == Seq(seq)));
    let known: HashSet<_> = stored.into_iter().map(|event| event.id).collect();
    assert_eq!(known, all);
    engine.close().await.unwrap();
}
