//! Dropping the oldest events of a topic.

use prombus_proto::{Event, Seq};

use super::case::{Case, cases};
use super::test_store::{
    TestStore, all_as_stored, ends, ids_of, seqs_of, stored_at, stored_ids, topic,
};
use crate::Bounds;

pub(super) fn cases() -> Vec<Case> {
    cases![
        events_below_are_dropped_and_the_rest_stays,
        the_remaining_bounds_are_returned,
        trimming_below_the_first_event_drops_nothing,
        a_second_call_changes_nothing,
        trimming_at_an_earlier_position_brings_nothing_back,
        trimming_above_the_last_event_drops_everything,
        a_topic_trimmed_empty_continues_its_numbering,
        an_unknown_topic_is_not_created,
        other_topics_and_state_stay,
        trimming_wakes_no_watcher,
        every_trim_leaves_the_newest_events,
    ]
}

async fn events_below_are_dropped_and_the_rest_stays(store: TestStore) {
    let events = store.fill("a", 10).await;
    store.trim("a", 4).await;
    assert_eq!(store.read_all("a").await, all_as_stored(&events[3..], 4));
}

async fn the_remaining_bounds_are_returned(store: TestStore) {
    store.fill("a", 10).await;
    let left = store.trim("a", 4).await;
    assert_eq!(ends(left), (4, 11));
    assert_eq!(ends(store.bounds("a").await), ends(left));
    assert_eq!(left.count(), 7);
}

async fn trimming_below_the_first_event_drops_nothing(store: TestStore) {
    store.fill("a", 3).await;
    for below in [0, 1] {
        assert_eq!(ends(store.trim("a", below).await), (1, 4));
    }
    assert_eq!(seqs_of(&store.read_all("a").await), [1, 2, 3]);
}

async fn a_second_call_changes_nothing(store: TestStore) {
    store.fill("a", 5).await;
    store.trim("a", 3).await;
    assert_eq!(ends(store.trim("a", 3).await), (3, 6));
    assert_eq!(seqs_of(&store.read_all("a").await), [3, 4, 5]);
}

async fn trimming_at_an_earlier_position_brings_nothing_back(store: TestStore) {
    store.fill("a", 5).await;
    store.trim("a", 4).await;
    assert_eq!(ends(store.trim("a", 2).await), (4, 6));
    assert_eq!(seqs_of(&store.read_all("a").await), [4, 5]);
}

async fn trimming_above_the_last_event_drops_everything(store: TestStore) {
    for (topic_name, below) in [("a", 4), ("b", 5), ("c", 1000), ("d", u64::MAX)] {
        store.fill(topic_name, 3).await;
        assert_eq!(ends(store.trim(topic_name, below).await), (4, 4));
        assert_eq!(store.read_all(topic_name).await, []);
        assert_eq!(store.bounds(topic_name).await.count(), 0);
    }
}

async fn a_topic_trimmed_empty_continues_its_numbering(store: TestStore) {
    store.fill("a", 3).await;
    store.trim("a", u64::MAX).await;
    assert_eq!(store.bounds("a").await.last(), Seq(3));
    let events = store.events("a", 2);
    assert_eq!(store.append(&events).await, stored_at([4, 5]));
    assert_eq!(store.read_all("a").await, all_as_stored(&events, 4));
    assert_eq!(ends(store.bounds("a").await), (4, 6));
}

async fn an_unknown_topic_is_not_created(store: TestStore) {
    assert_eq!(store.trim("a", 10).await, Bounds::EMPTY);
    assert_eq!(store.topic_names().await, Vec::<String>::new());
    assert_eq!(store.append(&[store.event("a")]).await, stored_at([1]));
    assert_eq!(store.read_all("a").await.len(), 1);
}

async fn other_topics_and_state_stay(store: TestStore) {
    store.fill("a", 3).await;
    let others = store.fill("b", 3).await;
    store.put("a", "v").await;
    store.trim("a", 4).await;
    assert_eq!(stored_ids(&store.read_all("b").await), ids_of(&others));
    assert_eq!(store.value("a").await.unwrap(), "v");
}

async fn trimming_wakes_no_watcher(store: TestStore) {
    store.fill("a", 3).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    store.trim("a", 4).await;
    assert!(!growth.has_changed().unwrap());
    assert_eq!(*growth.borrow(), Seq(3));
}

async fn every_trim_leaves_the_newest_events(store: TestStore) {
    let mut all: Vec<Event> = Vec::new();
    let mut below = 1;
    for step in [0, 1, 5, 2, 30, 7] {
        all.extend(store.fill("a", 10).await);
        below = (below + step).min(all.len() as u64 + 1);
        assert_eq!(ends(store.trim("a", below).await), (below, all.len() as u64 + 1));
        let kept = &all[usize::try_from(below).unwrap() - 1..];
        assert_eq!(store.read_all("a").await, all_as_stored(kept, below));
    }
}
