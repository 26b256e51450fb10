//! An id is stored once, for as long as the topic retains the event.

use prombus_proto::{Event, EventId, Timestamp};

use super::case::{Case, cases};
use super::test_store::{
    TestStore, all_as_stored, as_stored, found_at, of_events, payload, put, stored_at, topic,
};
use crate::{Batch, Position};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_duplicate_in_a_later_batch_is_found,
        a_duplicate_within_a_batch_is_found,
        a_duplicate_does_not_use_up_a_position,
        a_duplicate_does_not_change_the_stored_event,
        ids_are_unique_per_topic,
        duplicates_are_found_for_every_kind_of_id,
        similar_ids_are_distinct,
        an_old_id_is_still_found_after_many_newer_ones,
        the_same_batch_again_stores_no_event_and_repeats_its_state,
        the_id_of_a_trimmed_event_can_be_stored_again,
        a_duplicate_of_a_retained_event_is_found_after_trimming,
        the_ids_of_a_refused_batch_are_not_remembered,
    ]
}

/// One id of every kind that engines may store differently: UUIDs of version 7, which start with
/// their time, of version 4, other UUIDs, and text.
pub(super) fn ids_of_every_kind() -> Vec<EventId> {
    [
        "018bcfe5-6800-7c3a-9f2e-0123456789ab",
        "018bcfe5-6800-7c3a-9f2e-0123456789ac",
        "00000000-0000-7000-8000-000000000000",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
        "9b2f4d6e-1c3a-4f5b-8e7d-6a5c4b3d2e1f",
        "c232ab00-9414-11ec-b3c8-9f6bdeced846",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "order-1",
        "0",
        "Größe 漢字 🦀",
    ]
    .iter()
    .map(|text| EventId::new(text).unwrap())
    .collect()
}

async fn a_duplicate_in_a_later_batch_is_found(store: TestStore) {
    let events = store.fill("a", 3).await;
    let again = [events[1].clone(), store.event("a"), events[0].clone()];
    assert_eq!(store.append(&again).await, [found_at(2), stored_at([4])[0], found_at(1)]);
    assert_eq!(store.read_all("a").await.len(), 4);
}

async fn a_duplicate_within_a_batch_is_found(store: TestStore) {
    let (one, two) = (store.event("a"), store.event("a"));
    let batch = [one.clone(), one.clone(), two.clone(), one.clone(), two.clone()];
    assert_eq!(
        store.append(&batch).await,
        [stored_at([1])[0], found_at(1), stored_at([2])[0], found_at(1), found_at(2)]
    );
    assert_eq!(store.read_all("a").await, all_as_stored(&[one, two], 1));
}

async fn a_duplicate_does_not_use_up_a_position(store: TestStore) {
    let events = store.fill("a", 2).await;
    store.append(&events).await;
    assert_eq!(store.bounds("a").await.next.0, 3);
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([3]));
}

async fn a_duplicate_does_not_change_the_stored_event(store: TestStore) {
    let first = store.event("a");
    store.append(std::slice::from_ref(&first)).await;
    let second =
        Event { ts: Timestamp(first.ts.0 + 1), payload: payload("\"another\""), ..first.clone() };
    assert_eq!(store.append(&[second]).await, [found_at(1)]);
    assert_eq!(store.read_all("a").await, [as_stored(&first, 1)]);
}

async fn ids_are_unique_per_topic(store: TestStore) {
    store.fill("b", 1).await;
    let here = store.event("a");
    let there = Event { topic: topic("b"), ..here.clone() };
    assert_eq!(store.append(&[here.clone(), there.clone()]).await, stored_at([1, 2]));
    assert_eq!(store.append(&[there, here]).await, [found_at(2), found_at(1)]);
}

async fn duplicates_are_found_for_every_kind_of_id(store: TestStore) {
    let kinds = ids_of_every_kind();
    let events: Vec<Event> =
        kinds.iter().map(|id| Event { id: id.clone(), ..store.event("a") }).collect();
    let count = events.len() as u64;
    assert_eq!(store.append(&events).await, stored_at(1..=count));
    let found: Vec<Position> = (1..=count).map(found_at).collect();
    assert_eq!(store.append(&events).await, found);
    assert_eq!(store.read_all("a").await, all_as_stored(&events, 1));
}

async fn similar_ids_are_distinct(store: TestStore) {
    // The first two have the same sixteen bytes; the next three are one UUID in three spellings.
    let similar = [
        "61626364-6566-6768-696a-6b6c6d6e6f70",
        "abcdefghijklmnop",
        "018bcfe5-6800-7c3a-9f2e-0123456789ab",
        "018BCFE5-6800-7C3A-9F2E-0123456789AB",
        "018bcfe568007c3a9f2e0123456789ab",
        "x",
        "X",
        "x ",
    ];
    let events: Vec<Event> = similar
        .iter()
        .map(|text| Event { id: EventId::new(text).unwrap(), ..store.event("a") })
        .collect();
    assert_eq!(store.append(&events).await, stored_at(1..=8));
    for (seq, event) in (1..).zip(&events) {
        assert_eq!(store.seek_id("a", &event.id).await, Some(seq));
    }
}

async fn an_old_id_is_still_found_after_many_newer_ones(store: TestStore) {
    let old = store.fill("a", 50).await;
    for _ in 0..20 {
        store.clock.advance_ms(60_000);
        store.fill("a", 100).await;
    }
    let found: Vec<Position> = (1..=50).map(found_at).collect();
    assert_eq!(store.append(&old).await, found);
}

async fn the_same_batch_again_stores_no_event_and_repeats_its_state(store: TestStore) {
    let batch =
        Batch { state: vec![put("k", "from the batch")], ..of_events(&store.events("a", 2)) };
    let first = store.commit(batch.clone()).await;
    store.put("k", "changed").await;
    let second = store.commit(batch).await;
    assert_eq!(second.positions, [found_at(1), found_at(2)]);
    assert!(second.version > first.version);
    let entry = store.get("k").await.unwrap();
    assert_eq!(entry.value, "from the batch");
    assert_eq!(entry.version, second.version);
    assert_eq!(store.read_all("a").await.len(), 2);
}

async fn the_id_of_a_trimmed_event_can_be_stored_again(store: TestStore) {
    let events: Vec<Event> =
        ids_of_every_kind().into_iter().map(|id| Event { id, ..store.event("a") }).collect();
    let count = events.len() as u64;
    store.append(&events).await;
    store.trim("a", count + 1).await;
    assert_eq!(store.append(&events).await, stored_at(count + 1..=2 * count));
    assert_eq!(store.read_all("a").await, all_as_stored(&events, count + 1));
    assert_eq!(store.append(&events[..1]).await, [found_at(count + 1)]);
}

async fn a_duplicate_of_a_retained_event_is_found_after_trimming(store: TestStore) {
    let events = store.fill("a", 5).await;
    store.trim("a", 3).await;
    assert_eq!(
        store.append(&events).await,
        [stored_at([6])[0], stored_at([7])[0], found_at(3), found_at(4), found_at(5)]
    );
}

async fn the_ids_of_a_refused_batch_are_not_remembered(store: TestStore) {
    let events = store.events("a", 2);
    let refused =
        Batch { expected_last: vec![(topic("a"), prombus_proto::Seq(7))], ..of_events(&events) };
    store.try_commit(refused).await.unwrap_err();
    assert_eq!(store.append(&events).await, stored_at([1, 2]));
}
