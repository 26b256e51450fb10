//! All of a batch is stored or nothing, and a conflict reports the actual state.

use prombus_proto::{Event, Seq};

use super::case::{Case, cases};
use super::test_store::{
    TestStore, delete_if, key, of_events, of_state, put, put_if, stored_at, topic,
};
use crate::{Batch, Bounds, CommitError, Conflict, Expect, StateOp, Version};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_batch_with_the_right_expected_position_is_stored,
        a_batch_with_a_wrong_expected_position_is_refused,
        an_expected_position_counts_trimmed_events,
        every_expected_position_must_hold,
        an_expected_position_is_the_one_before_the_batch,
        an_expected_position_may_name_a_topic_without_events_in_the_batch,
        a_state_conflict_stores_nothing,
        a_position_conflict_stores_nothing,
        a_conflict_in_the_last_operation_undoes_the_first,
        a_conflict_wakes_no_watcher,
        an_expectation_refuses_a_repeated_batch,
        events_and_state_are_stored_together,
    ]
}

fn conflict_of<T: std::fmt::Debug>(answer: Result<T, CommitError>) -> Conflict {
    match answer {
        Err(CommitError::Conflict(conflict)) => conflict,
        other => panic!("expected a conflict: {other:?}"),
    }
}

fn expecting(last: &[(&str, u64)], events: &[Event]) -> Batch {
    let expected = |(name, seq): &(&str, u64)| (topic(name), Seq(*seq));
    Batch { expected_last: last.iter().map(expected).collect(), ..of_events(events) }
}

async fn a_batch_with_the_right_expected_position_is_stored(store: TestStore) {
    for last in 0..3 {
        let batch = expecting(&[("a", last)], &[store.event("a")]);
        assert_eq!(store.commit(batch).await.positions, stored_at([last + 1]));
    }
}

async fn a_batch_with_a_wrong_expected_position_is_refused(store: TestStore) {
    store.fill("a", 3).await;
    for wrong in [0, 2, 4, u64::MAX] {
        let batch = expecting(&[("a", wrong)], &[store.event("a")]);
        assert_eq!(
            conflict_of(store.try_commit(batch).await),
            Conflict::Last { topic: topic("a"), expected: Seq(wrong), actual: Seq(3) }
        );
    }
    assert_eq!(store.read_all("a").await.len(), 3);
}

async fn an_expected_position_counts_trimmed_events(store: TestStore) {
    store.fill("a", 3).await;
    store.trim("a", 4).await;
    let batch = expecting(&[("a", 0)], &[store.event("a")]);
    conflict_of(store.try_commit(batch).await);
    let batch = expecting(&[("a", 3)], &[store.event("a")]);
    assert_eq!(store.commit(batch).await.positions, stored_at([4]));
}

async fn every_expected_position_must_hold(store: TestStore) {
    store.fill("b", 2).await;
    let batch = expecting(&[("a", 0), ("b", 1)], &[store.event("a"), store.event("b")]);
    assert_eq!(
        conflict_of(store.try_commit(batch).await),
        Conflict::Last { topic: topic("b"), expected: Seq(1), actual: Seq(2) }
    );
    assert_eq!(store.topic_names().await, ["b"]);
    let batch = expecting(&[("a", 0), ("b", 2)], &[store.event("a"), store.event("b")]);
    assert_eq!(store.commit(batch).await.positions, stored_at([1, 3]));
}

async fn an_expected_position_is_the_one_before_the_batch(store: TestStore) {
    let events = store.events("a", 2);
    conflict_of(store.try_commit(expecting(&[("a", 2)], &events)).await);
    conflict_of(store.try_commit(expecting(&[("a", 1)], &events)).await);
    store.commit(expecting(&[("a", 0)], &events)).await;
}

async fn an_expected_position_may_name_a_topic_without_events_in_the_batch(store: TestStore) {
    store.fill("b", 1).await;
    let batch = |last| Batch { state: vec![put("k", "v")], ..expecting(&[("b", last)], &[]) };
    conflict_of(store.try_commit(batch(0)).await);
    assert_eq!(store.get("k").await, None);
    store.commit(batch(1)).await;
    assert_eq!(store.value("k").await.unwrap(), "v");
}

/// Commits `batch`, which must be refused, and checks that the store has not changed.
async fn check_stores_nothing(store: &TestStore, batch: Batch) {
    let events_before = store.fill("known", 2).await;
    let version_before = store.put("kept", "as it was").await;
    let ids: Vec<_> = batch.events.iter().map(|e| e.id().clone()).collect();

    conflict_of(store.try_commit(batch).await);

    assert_eq!(store.topic_names().await, ["known"]);
    assert_eq!(store.bounds("new").await, Bounds::EMPTY);
    assert_eq!(store.read_all("new").await, []);
    assert_eq!(store.read_all("known").await.len(), events_before.len());
    for id in &ids {
        assert_eq!(store.seek_id("new", id).await, None);
        assert_eq!(store.seek_id("known", id).await, None);
    }
    assert_eq!(store.scan(b"", None, 10).await, [b"kept"]);
    let kept = store.get("kept").await.unwrap();
    assert_eq!(kept.value, "as it was");
    assert_eq!(kept.version, version_before);
    assert_eq!(store.append(&[store.event("known")]).await, stored_at([3]));
}

async fn a_state_conflict_stores_nothing(store: TestStore) {
    let batch = Batch {
        state: vec![put("fresh", "1"), put("kept", "2"), put_if("kept", "3", Expect::Absent)],
        ..of_events(&[store.event("new"), store.event("known")])
    };
    check_stores_nothing(&store, batch).await;
}

async fn a_position_conflict_stores_nothing(store: TestStore) {
    let events = [store.event("new"), store.event("known")];
    let batch = Batch {
        state: vec![put("fresh", "1"), put("kept", "2")],
        ..expecting(&[("new", 0), ("known", 1)], &events)
    };
    check_stores_nothing(&store, batch).await;
}

async fn a_conflict_in_the_last_operation_undoes_the_first(store: TestStore) {
    let version = store.put("k", "1").await;
    let ops: Vec<StateOp> = (0..50)
        .map(|n| put(&format!("n{n:02}"), "x"))
        .chain([delete_if("k", Expect::Version(Version(version.0 + 1_000)))])
        .collect();
    assert_eq!(
        conflict_of(store.try_commit(of_state(ops)).await),
        Conflict::State { key: key("k"), actual: Some(version) }
    );
    assert_eq!(store.scan(b"", None, 100).await, [b"k"]);
}

async fn a_conflict_wakes_no_watcher(store: TestStore) {
    store.fill("a", 1).await;
    let mut growth = store.engine().watch(&topic("a"));
    growth.borrow_and_update();
    let batch = expecting(&[("a", 0)], &store.events("a", 1));
    conflict_of(store.try_commit(batch).await);
    assert!(!growth.has_changed().unwrap());
    assert_eq!(*growth.borrow(), Seq(1));
}

async fn an_expectation_refuses_a_repeated_batch(store: TestStore) {
    let batch = Batch {
        state: vec![put_if("done", "yes", Expect::Absent)],
        ..expecting(&[("a", 0)], &store.events("a", 1))
    };
    store.commit(batch.clone()).await;
    conflict_of(store.try_commit(batch).await);
    assert_eq!(store.read_all("a").await.len(), 1);
}

async fn events_and_state_are_stored_together(store: TestStore) {
    let events = [store.event("a"), store.event("b")];
    let batch =
        Batch { state: vec![put("cursor", "7")], ..expecting(&[("a", 0), ("b", 0)], &events) };
    let committed = store.commit(batch).await;
    assert_eq!(committed.positions, stored_at([1, 1]));
    let cursor = store.get("cursor").await.unwrap();
    assert_eq!(cursor.value, "7");
    assert_eq!(cursor.version, committed.version);
    assert_eq!(store.topic_names().await, ["a", "b"]);
}
