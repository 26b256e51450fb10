//! Appended events are read back unchanged.

use prombus_proto::{Event, EventId, Headers, Key, Seq, Timestamp};

use super::case::{Case, cases};
use super::test_store::{
    EVERYTHING, TestStore, all_as_stored, as_stored, of_events, payload, stored_at, topic,
};
use crate::{Batch, Bounds, Condition, Durability};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_new_store_is_empty_and_healthy,
        an_appended_event_is_read_back_byte_for_byte,
        optional_members_are_preserved,
        a_commit_reaches_the_requested_or_the_highest_supported_durability,
        a_finished_commit_is_visible_to_the_next_call,
        an_empty_batch_still_gets_a_version,
        topics_with_similar_names_do_not_mix,
        topics_are_listed_by_name_from_their_first_event_on,
        reading_a_topic_does_not_create_it,
        bounds_report_the_approximate_size,
    ]
}

async fn a_new_store_is_empty_and_healthy(store: TestStore) {
    assert_eq!(store.bounds("a").await, Bounds::EMPTY);
    assert_eq!(store.read_all("a").await, []);
    assert_eq!(store.topic_names().await, Vec::<String>::new());
    assert_eq!(store.scan(b"", None, 10).await, Vec::<Vec<u8>>::new());
    let health = store.engine().health();
    assert_eq!(health.condition, Condition::Healthy);
    assert_eq!(health.incidents, []);
}

async fn an_appended_event_is_read_back_byte_for_byte(store: TestStore) {
    let event = store.event("a");
    assert_eq!(store.append(std::slice::from_ref(&event)).await, stored_at([1]));
    let read = store.read_all("a").await;
    assert_eq!(read, [as_stored(&event, 1)]);
    assert_eq!(Event::decode(&read[0].json).unwrap(), (Seq(1), event));
}

async fn optional_members_are_preserved(store: TestStore) {
    let full = Event {
        key: Some(Key::new("order-7").unwrap()),
        headers: Headers::new([("b".into(), "2".into()), ("a".into(), String::new())]).unwrap(),
        payload: payload("{\"b\": 1e400, \"a\": [1,  2], \"a\": \"\\u00e9\"}"),
        caused_by: vec![EventId::new("order-1").unwrap(), store.new_id()],
        tags: vec!["t".into(), String::new()],
        sid: Some("session 1".into()),
        ts: Timestamp(0),
        ..store.event("a")
    };
    let late = Event { ts: Timestamp(1 << 52), payload: payload("null"), ..store.event("a") };
    let events = [full, store.event("a"), late];
    store.append(&events).await;
    let read = store.read_all("a").await;
    assert_eq!(read, all_as_stored(&events, 1));
    for (event, stored) in events.into_iter().zip(&read) {
        assert_eq!(Event::decode(&stored.json).unwrap(), (stored.seq, event));
    }
}

async fn a_commit_reaches_the_requested_or_the_highest_supported_durability(store: TestStore) {
    let max = store.engine().capabilities().max_durability;
    for requested in [Durability::Buffered, Durability::Fsync] {
        let batch = Batch { durability: requested, ..of_events(&[store.event("a")]) };
        let committed = store.commit(batch).await;
        let reached = committed.durability;
        assert!(reached >= requested.min(max), "{requested:?}: {reached:?}");
        assert!(reached <= max, "{requested:?}: {reached:?}");
        let write = committed.write.expect("no other commit shares the write");
        assert_eq!(write.events, 1);
        let is_synced = write.sync_time.is_some();
        assert!(!is_synced || reached == Durability::Fsync, "{requested:?}: {committed:?}");
    }
    assert_eq!(store.read_all("a").await.len(), 2);
}

async fn a_finished_commit_is_visible_to_the_next_call(store: TestStore) {
    for round in 1..=20 {
        let event = store.event("a");
        store.append(std::slice::from_ref(&event)).await;
        assert_eq!(store.bounds("a").await.last(), Seq(round));
        assert_eq!(store.seek_id("a", &event.id).await, Some(round));
        assert_eq!(store.read("a", round, EVERYTHING).await, [as_stored(&event, round)]);
    }
}

async fn an_empty_batch_still_gets_a_version(store: TestStore) {
    let first = store.commit(of_events(&[])).await;
    assert_eq!(first.positions, []);
    let second = store.commit(of_events(&[])).await;
    assert!(second.version > first.version);
    assert_eq!(store.topic_names().await, Vec::<String>::new());
}

async fn topics_with_similar_names_do_not_mix(store: TestStore) {
    // Each name is a prefix of another one, or nearly.
    let names = ["a", "a.b", "a-b", "ab", "a.b.c"];
    let mut all = Vec::new();
    for name in names {
        all.push(store.fill(name, 3).await);
    }
    for (name, events) in names.iter().zip(&all) {
        assert_eq!(store.read_all(name).await, all_as_stored(events, 1));
        assert_eq!(store.bounds(name).await.count(), 3);
    }
}

async fn topics_are_listed_by_name_from_their_first_event_on(store: TestStore) {
    for name in ["b", "a.z", "a-z", "c", "a", "b"] {
        store.fill(name, 1).await;
    }
    assert_eq!(store.topic_names().await, ["a", "a-z", "a.z", "b", "c"]);
    store.trim("c", u64::MAX).await;
    assert_eq!(store.topic_names().await, ["a", "a-z", "a.z", "b", "c"]);
}

async fn reading_a_topic_does_not_create_it(store: TestStore) {
    store.read_all("asked").await;
    store.bounds("asked").await;
    store.seek_id("asked", &store.new_id()).await;
    store.seek_time("asked", 0).await;
    let _watched = store.engine().watch(&topic("asked"));
    let batch = Batch { expected_last: vec![(topic("asked"), Seq::ZERO)], ..of_events(&[]) };
    store.commit(batch).await;
    assert_eq!(store.topic_names().await, Vec::<String>::new());
}

async fn bounds_report_the_approximate_size(store: TestStore) {
    let mut json_bytes = 0;
    for round in 1..=3 {
        let before = store.bounds("a").await.bytes;
        let events: Vec<Event> = (0..50)
            .map(|n| Event {
                payload: payload(&format!("\"{}\"", format!("{round}{n}").repeat(400))),
                ..store.event("a")
            })
            .collect();
        store.append(&events).await;
        json_bytes += events.iter().map(|e| as_stored(e, 1).json.len()).sum::<usize>() as u64;
        let after = store.bounds("a").await.bytes;
        assert!(after > before, "{before} {after}");
        // Engines may count their framing, or compress.
        assert!(after > json_bytes / 20 && after < json_bytes * 10, "{json_bytes} {after}");
    }
}
