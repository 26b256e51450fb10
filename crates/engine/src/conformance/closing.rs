//! Closing an engine.

use prombus_proto::{Event, Seq, Timestamp};

use super::case::{Case, cases};
use super::test_store::{EVERYTHING, TestStore, as_stored, key, of_events, of_state, put, topic};
use crate::{CommitError, Condition, ReadError, Retention, Unavailable};

pub(super) fn cases() -> Vec<Case> {
    cases![
        every_call_after_close_fails_with_closed,
        a_second_call_changes_nothing,
        a_closed_engine_still_reports_health_and_capabilities,
        commits_in_progress_are_answered,
    ]
}

/// Cases that reopen the store after closing.
pub(super) fn cases_with_restart() -> Vec<Case> {
    cases![commits_acknowledged_while_closing_survive]
}

fn commit_is_closed<T>(answer: &Result<T, CommitError>) -> bool {
    matches!(answer, Err(CommitError::Unavailable(Unavailable::Closed)))
}

fn read_is_closed<T>(answer: &Result<T, ReadError>) -> bool {
    matches!(answer, Err(ReadError::Unavailable(Unavailable::Closed)))
}

async fn every_call_after_close_fails_with_closed(store: TestStore) {
    let events = store.fill("a", 2).await;
    store.put("k", "v").await;
    let engine = store.engine();
    engine.close().await.unwrap();
    let topic = topic("a");
    assert!(commit_is_closed(&engine.commit(of_events(&[])).await));
    assert!(commit_is_closed(&engine.commit(of_events(&events)).await));
    assert!(commit_is_closed(&engine.commit(of_state(vec![put("k", "w")])).await));
    assert!(commit_is_closed(&engine.trim(&topic, Seq(2)).await));
    assert!(commit_is_closed(&engine.retain(&topic, &Retention::default()).await));
    assert!(read_is_closed(&engine.read(&topic, Seq::ZERO, EVERYTHING).await));
    assert!(read_is_closed(&engine.bounds(&topic).await));
    assert!(read_is_closed(&engine.topics().await));
    assert!(read_is_closed(&engine.seek_time(&topic, Timestamp(0)).await));
    assert!(read_is_closed(&engine.seek_id(&topic, &events[0].id).await));
    assert!(read_is_closed(&engine.get(&key("k")).await));
    assert!(read_is_closed(&engine.scan(b"", None, 1).await));
    // `watch` cannot fail, so its channel is closed instead.
    assert!(engine.watch(&topic).changed().await.is_err());
}

async fn a_second_call_changes_nothing(store: TestStore) {
    store.engine().close().await.unwrap();
    store.engine().close().await.unwrap();
    assert!(read_is_closed(&store.engine().topics().await));
}

async fn a_closed_engine_still_reports_health_and_capabilities(store: TestStore) {
    let before = store.engine().capabilities();
    store.engine().close().await.unwrap();
    assert_eq!(store.engine().health().condition, Condition::Closed);
    assert_eq!(store.engine().capabilities(), before);
}

/// Starts many commits, closes the engine in the middle, and returns the acknowledged events.
async fn close_while_committing(store: &TestStore) -> Vec<(Event, Seq)> {
    let commits: Vec<_> = store
        .events("a", 200)
        .into_iter()
        .map(|event| {
            let engine = store.engine().clone();
            tokio::spawn(async move {
                let answer = engine.commit(of_events(std::slice::from_ref(&event))).await;
                (event, answer)
            })
        })
        .collect();
    let mut growth = store.engine().watch(&topic("a"));
    growth.wait_for(|seq| *seq >= Seq(1)).await.unwrap();
    store.engine().close().await.unwrap();
    let mut stored = Vec::new();
    for commit in commits {
        match commit.await.unwrap() {
            (event, Ok(committed)) => stored.push((event, committed.positions[0].seq)),
            (_, Err(CommitError::Unavailable(Unavailable::Closed))) => {}
            (_, Err(other)) => panic!("{other}"),
        }
    }
    assert!(!stored.is_empty(), "a watcher saw one, so it must be acknowledged");
    stored
}

async fn commits_in_progress_are_answered(store: TestStore) {
    close_while_committing(&store).await;
    assert!(read_is_closed(&store.engine().bounds(&topic("a")).await));
}

async fn commits_acknowledged_while_closing_survive(mut store: TestStore) {
    let stored = close_while_committing(&store).await;
    store.restart().await;
    let read = store.read_all("a").await;
    for (event, seq) in stored {
        let index = usize::try_from(seq.0).unwrap() - 1;
        assert_eq!(read[index], as_stored(&event, seq.0));
    }
}
