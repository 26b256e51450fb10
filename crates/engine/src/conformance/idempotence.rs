//! The same id is stored once, for as long as the topic keeps the event.

use prombus_proto::{Event, EventId, Timestamp};

use super::case::{Case, cases};
use super::store::{
    Store, all_as_stored, as_stored, found_at, of_events, payload, put, stored_at, topic,
};
use crate::{Batch, Position};

pub(super) fn cases() -> Vec<Case> {
    cases![
        an_id_comes_again_in_a_later_batch,
        an_id_comes_again_within_a_batch,
        a_duplicate_takes_no_position,
        the_first_one_stays_whatever_the_second_says,
        an_id_belongs_to_its_topic,
        any_kind_of_id_counts,
        ids_that_look_alike_differ,
        old_ids_are_known_behind_many_newer_ones,
        the_same_batch_again_stores_no_event_and_repeats_its_state,
        a_duplicate_of_a_trimmed_event_is_stored_anew,
        a_duplicate_of_a_kept_event_is_found_after_trimming,
        what_a_refused_batch_brought_is_not_known,
    ]
}

/// One id of every kind that engines may treat in their own way: version 7 with its time in front,
/// version 4 without, other UUIDs, and text.
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

async fn an_id_comes_again_in_a_later_batch(store: Store) {
    let events = store.fill("a", 3).await;
    let again = [events[1].clone(), store.event("a"), events[0].clone()];
    assert_eq!(store.append(&again).await, [found_at(2), stored_at([4])[0], found_at(1)]);
    assert_eq!(store.read_all("a").await.len(), 4);
}

async fn an_id_comes_again_within_a_batch(store: Store) {
    let (one, two) = (store.event("a"), store.event("a"));
    let batch = [one.clone(), one.clone(), two.clone(), one.clone(), two.clone()];
    assert_eq!(
        store.append(&batch).await,
        [stored_at([1])[0], found_at(1), stored_at([2])[0], found_at(1), found_at(2)]
    );
    assert_eq!(store.read_all("a").await, all_as_stored(&[one, two], 1));
}

async fn a_duplicate_takes_no_position(store: Store) {
    let events = store.fill("a", 2).await;
    store.append(&events).await;
    assert_eq!(store.bounds("a").await.next.0, 3);
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([3]));
}

async fn the_first_one_stays_whatever_the_second_says(store: Store) {
    let first = store.event("a");
    store.append(std::slice::from_ref(&first)).await;
    let second =
        Event { ts: Timestamp(first.ts.0 + 1), payload: payload("\"another\""), ..first.clone() };
    assert_eq!(store.append(&[second]).await, [found_at(1)]);
    assert_eq!(store.read_all("a").await, [as_stored(&first, 1)]);
}

async fn an_id_belongs_to_its_topic(store: Store) {
    store.fill("b", 1).await;
    let here = store.event("a");
    let there = Event { topic: topic("b"), ..here.clone() };
    assert_eq!(store.append(&[here.clone(), there.clone()]).await, stored_at([1, 2]));
    assert_eq!(store.append(&[there, here]).await, [found_at(2), found_at(1)]);
}

async fn any_kind_of_id_counts(store: Store) {
    let kinds = ids_of_every_kind();
    let events: Vec<Event> =
        kinds.iter().map(|id| Event { id: id.clone(), ..store.event("a") }).collect();
    let count = events.len() as u64;
    assert_eq!(store.append(&events).await, stored_at(1..=count));
    let found: Vec<Position> = (1..=count).map(found_at).collect();
    assert_eq!(store.append(&events).await, found);
    assert_eq!(store.read_all("a").await, all_as_stored(&events, 1));
}

async fn ids_that_look_alike_differ(store: Store) {
    // The first two have the same sixteen bytes; the next three are one UUID in three spellings.
    let alike = [
        "61626364-6566-6768-696a-6b6c6d6e6f70",
        "abcdefghijklmnop",
        "018bcfe5-6800-7c3a-9f2e-0123456789ab",
        "018BCFE5-6800-7C3A-9F2E-0123456789AB",
        "018bcfe568007c3a9f2e0123456789ab",
        "x",
        "X",
        "x ",
    ];
    let events: Vec<Event> = alike
        .iter()
        .map(|text| Event { id: EventId::new(text).unwrap(), ..store.event("a") })
        .collect();
    assert_eq!(store.append(&events).await, stored_at(1..=8));
    for (seq, event) in (1..).zip(&events) {
        assert_eq!(store.seek_id("a", &event.id).await, Some(seq));
    }
}

async fn old_ids_are_known_behind_many_newer_ones(store: Store) {
    let old = store.fill("a", 50).await;
    for _ in 0..20 {
        store.clock.advance_ms(60_000);
        store.fill("a", 100).await;
    }
    let found: Vec<Position> = (1..=50).map(found_at).collect();
    assert_eq!(store.append(&old).await, found);
}

async fn the_same_batch_again_stores_no_event_and_repeats_its_state(store: Store) {
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

async fn a_duplicate_of_a_trimmed_event_is_stored_anew(store: Store) {
    let events: Vec<Event> =
        ids_of_every_kind().into_iter().map(|id| Event { id, ..store.event("a") }).collect();
    let count = events.len() as u64;
    store.append(&events).await;
    store.trim("a", count + 1).await;
    assert_eq!(store.append(&events).await, stored_at(count + 1..=2 * count));
    assert_eq!(store.read_all("a").await, all_as_stored(&events, count + 1));
    assert_eq!(store.append(&events[..1]).await, [found_at(count + 1)]);
}

async fn a_duplicate_of_a_kept_event_is_found_after_trimming(store: Store) {
    let events = store.fill("a", 5).await;
    store.trim("a", 3).await;
    assert_eq!(
        store.append(&events).await,
        [stored_at([6])[0], stored_at([7])[0], found_at(3), found_at(4), found_at(5)]
    );
}

async fn what_a_refused_batch_brought_is_not_known(store: Store) {
    let events = store.events("a", 2);
    let refused =
        Batch { expected_last: vec![(topic("a"), prombus_proto::Seq(7))], ..of_events(&events) };
    store.try_commit(refused).await.unwrap_err();
    assert_eq!(store.append(&events).await, stored_at([1, 2]));
}
