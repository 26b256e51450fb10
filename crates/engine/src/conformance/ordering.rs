//! Positions start at one, have no gaps, and follow the order of the batch.

use prombus_proto::{Event, Seq};

use super::case::{Case, cases};
use super::test_store::{
    TestStore, all_as_stored, ids_of, of_state, put, seqs_of, stored_at, stored_ids,
};
use crate::Bounds;

pub(super) fn cases() -> Vec<Case> {
    cases![
        positions_start_at_one,
        a_batch_keeps_its_order,
        each_topic_of_a_mixed_batch_has_its_own_positions,
        state_operations_do_not_use_up_positions,
        timestamps_and_ids_do_not_affect_the_order,
        many_small_batches_leave_no_gap,
    ]
}

async fn positions_start_at_one(store: TestStore) {
    for seq in 1..=5 {
        assert_eq!(store.append(&[store.event("a")]).await, stored_at([seq]), "event {seq}");
        let bounds = store.bounds("a").await;
        assert_eq!((bounds.first, bounds.next, bounds.last()), (Seq(1), Seq(seq + 1), Seq(seq)));
    }
}

async fn a_batch_keeps_its_order(store: TestStore) {
    let events = store.events("a", 100);
    assert_eq!(store.append(&events).await, stored_at(1..=100));
    assert_eq!(store.read_all("a").await, all_as_stored(&events, 1));
}

async fn each_topic_of_a_mixed_batch_has_its_own_positions(store: TestStore) {
    store.fill("b", 10).await;
    let order = ["a", "b", "a", "c", "b", "a"];
    let events: Vec<Event> = order.iter().map(|name| store.event(name)).collect();
    assert_eq!(store.append(&events).await, stored_at([1, 11, 2, 1, 12, 3]));
    let of = |name: &str| -> Vec<Event> {
        let in_topic = |event: &&Event| event.topic.as_str() == name;
        events.iter().filter(in_topic).cloned().collect()
    };
    assert_eq!(store.read_all("a").await, all_as_stored(&of("a"), 1));
    assert_eq!(store.read_all("b").await[10..], all_as_stored(&of("b"), 11));
    assert_eq!(store.read_all("c").await, all_as_stored(&of("c"), 1));
}

async fn state_operations_do_not_use_up_positions(store: TestStore) {
    store.fill("a", 1).await;
    store.commit(of_state(vec![put("a", "1"), put("k", "2")])).await;
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([2]));
    assert_eq!(store.bounds("k").await, Bounds::EMPTY);
}

async fn timestamps_and_ids_do_not_affect_the_order(store: TestStore) {
    let mut events = store.events("a", 20);
    events.reverse();
    for (n, event) in events.iter_mut().enumerate() {
        event.ts.0 -= (n as u64 * 7919) % 1000;
    }
    for event in &events {
        store.append(std::slice::from_ref(event)).await;
    }
    assert_eq!(stored_ids(&store.read_all("a").await), ids_of(&events));
}

async fn many_small_batches_leave_no_gap(store: TestStore) {
    let mut all = Vec::new();
    for size in [1, 3, 0, 2, 7, 1, 1, 30, 5] {
        all.extend(store.fill("a", size).await);
    }
    let read = store.read_all("a").await;
    assert_eq!(seqs_of(&read), (1..=50).collect::<Vec<u64>>());
    assert_eq!(read, all_as_stored(&all, 1));
}
