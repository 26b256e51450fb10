//! Positions in a topic, by time and by id.

use super::case::{Case, cases};
use super::idempotence::ids_of_every_kind;
use super::test_store::{TestStore, topic};
use prombus_proto::{Event, EventId};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_time_seeks_to_the_first_event_at_or_after_it,
        of_equal_times_the_first_event_is_returned,
        times_need_not_increase,
        a_late_event_with_an_old_time_hides_nothing,
        only_retained_events_are_searched_by_time,
        an_empty_topic_returns_its_next_position_for_any_time,
        every_time_is_found_in_a_long_topic,
        an_id_seeks_to_its_event,
        an_id_of_any_kind_is_found,
        several_ids_are_found_as_each_alone,
        an_id_is_searched_in_its_own_topic_only,
        a_trimmed_id_is_not_found,
        an_id_stored_again_is_found_at_its_new_position,
    ]
}

async fn a_time_seeks_to_the_first_event_at_or_after_it(store: TestStore) {
    store.fill_at("a", &[100, 200, 300]).await;
    let positions =
        [(0, 1), (100, 1), (101, 2), (200, 2), (299, 3), (300, 3), (301, 4), (u64::MAX, 4)];
    for (ts, seq) in positions {
        assert_eq!(store.seek_time("a", ts).await, seq, "{ts}");
    }
}

async fn of_equal_times_the_first_event_is_returned(store: TestStore) {
    store.fill_at("a", &[100, 200, 200, 200, 300]).await;
    assert_eq!(store.seek_time("a", 200).await, 2);
    assert_eq!(store.seek_time("a", 150).await, 2);
}

async fn times_need_not_increase(store: TestStore) {
    store.fill_at("a", &[500, 100, 400, 900, 50, 600]).await;
    let positions = [(0, 1), (500, 1), (501, 4), (900, 4), (901, 7)];
    for (ts, seq) in positions {
        assert_eq!(store.seek_time("a", ts).await, seq, "{ts}");
    }
    store.trim("a", 2).await;
    let positions = [(0, 2), (100, 2), (101, 3), (401, 4), (901, 7)];
    for (ts, seq) in positions {
        assert_eq!(store.seek_time("a", ts).await, seq, "{ts}, trimmed");
    }
}

async fn a_late_event_with_an_old_time_hides_nothing(store: TestStore) {
    for _ in 0..20 {
        store.fill_at("a", &[1000; 50]).await;
    }
    store.fill_at("a", &[1]).await;
    store.fill_at("a", &[2000]).await;
    store.fill_at("a", &[1]).await;
    assert_eq!(store.seek_time("a", 1).await, 1);
    assert_eq!(store.seek_time("a", 1001).await, 1002);
    assert_eq!(store.seek_time("a", 2001).await, 1004);
}

async fn only_retained_events_are_searched_by_time(store: TestStore) {
    store.fill_at("a", &[900, 100, 200]).await;
    store.trim("a", 2).await;
    assert_eq!(store.seek_time("a", 0).await, 2);
    assert_eq!(store.seek_time("a", 500).await, 4);
    store.trim("a", 4).await;
    assert_eq!(store.seek_time("a", 0).await, 4);
}

async fn an_empty_topic_returns_its_next_position_for_any_time(store: TestStore) {
    for ts in [0, 1, u64::MAX] {
        assert_eq!(store.seek_time("a", ts).await, 1);
    }
}

async fn every_time_is_found_in_a_long_topic(store: TestStore) {
    // Increasing overall but stepping back now and then, like the clocks of several publishers.
    let times: Vec<u64> = (0..600u64).map(|n| 10_000 + n * 10 - (n * 37) % 90).collect();
    for part in times.chunks(100) {
        store.fill_at("a", part).await;
    }
    for ts in (9_900..16_100).step_by(13) {
        let expected = times.iter().position(|time| *time >= ts);
        let expected = expected.map_or(601, |index| index as u64 + 1);
        assert_eq!(store.seek_time("a", ts).await, expected, "{ts}");
    }
}

async fn an_id_seeks_to_its_event(store: TestStore) {
    let mut events = Vec::new();
    for _ in 0..10 {
        events.extend(store.fill("a", 20).await);
    }
    for (seq, event) in (1..).zip(&events) {
        assert_eq!(store.seek_id("a", &event.id).await, Some(seq));
    }
    assert_eq!(store.seek_id("a", &store.new_id()).await, None);
    let unknown = EventId::new("unknown").unwrap();
    assert_eq!(store.seek_id("a", &unknown).await, None);
}

async fn an_id_of_any_kind_is_found(store: TestStore) {
    for (seq, id) in (1..).zip(ids_of_every_kind()) {
        assert_eq!(store.seek_id("a", &id).await, None);
        let event = Event { id: id.clone(), ..store.event("a") };
        store.append(&[event]).await;
        assert_eq!(store.seek_id("a", &id).await, Some(seq));
    }
}

async fn several_ids_are_found_as_each_alone(store: TestStore) {
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.extend(store.fill("a", 100).await.into_iter().map(|event| event.id));
    }
    for id in ids_of_every_kind() {
        store.append(&[Event { id: id.clone(), ..store.event("a") }]).await;
        ids.push(id);
    }
    ids.extend(store.fill("b", 1).await.into_iter().map(|event| event.id));
    ids.extend((0..100).map(|_| store.new_id()));
    ids.reverse();
    // One of them twice.
    ids.push(ids[200].clone());
    store.trim("a", 120).await;
    let mut each = Vec::new();
    for id in &ids {
        each.push(store.seek_id("a", id).await);
    }
    assert!(each.iter().flatten().count() > 281, "all that are not trimmed");
    let found = store.engine().seek_ids(&topic("a"), &ids).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|seq| seq.map(|seq| seq.0)).collect();
    assert_eq!(found, each);
    assert_eq!(store.engine().seek_ids(&topic("a"), &[]).await.unwrap(), vec![]);
    assert_eq!(store.engine().seek_ids(&topic("c"), &ids[..2]).await.unwrap(), [None, None]);
}

async fn an_id_is_searched_in_its_own_topic_only(store: TestStore) {
    let events = store.fill("a", 1).await;
    store.fill("b", 1).await;
    assert_eq!(store.seek_id("b", &events[0].id).await, None);
    assert_eq!(store.seek_id("c", &events[0].id).await, None);
}

async fn a_trimmed_id_is_not_found(store: TestStore) {
    let events = store.fill("a", 4).await;
    store.trim("a", 3).await;
    let mut found = Vec::new();
    for event in &events {
        found.push(store.seek_id("a", &event.id).await);
    }
    assert_eq!(found, [None, None, Some(3), Some(4)]);
}

async fn an_id_stored_again_is_found_at_its_new_position(store: TestStore) {
    let events = store.fill("a", 3).await;
    store.trim("a", 2).await;
    store.append(&events[..1]).await;
    assert_eq!(store.seek_id("a", &events[0].id).await, Some(4));
    store.trim("a", 4).await;
    assert_eq!(store.seek_id("a", &events[0].id).await, Some(4));
    store.trim("a", 5).await;
    assert_eq!(store.seek_id("a", &events[0].id).await, None);
}
