//! The end of an engine.

use prombus_proto::{Event, Seq, Timestamp};

use super::case::{Case, cases};
use super::store::{EVERYTHING, Store, as_stored, key, of_events, of_state, put, topic};
use crate::{CommitError, Condition, ReadError, Retention, Unavailable};

pub(super) fn cases() -> Vec<Case> {
    cases![
        every_call_after_it_says_closed,
        twice_nothing_more_happens,
        health_says_closed_and_capabilities_stay,
        what_runs_meanwhile_is_answered,
    ]
}

/// Cases that look at what is there after the end.
pub(super) fn cases_with_restart() -> Vec<Case> {
    cases![what_was_answered_while_closing_is_there_afterwards]
}

fn refused_commit<T>(answer: &Result<T, CommitError>) -> bool {
    matches!(answer, Err(CommitError::Unavailable(Unavailable::Closed)))
}

fn refused_read<T>(answer: &Result<T, ReadError>) -> bool {
    matches!(answer, Err(ReadError::Unavailable(Unavailable::Closed)))
}

async fn every_call_after_it_says_closed(store: Store) {
    let events = store.fill("a", 2).await;
    store.put("k", "v").await;
    let engine = store.engine();
    engine.close().await.unwrap();
    let topic = topic("a");
    assert!(refused_commit(&engine.commit(of_events(&[])).await));
    assert!(refused_commit(&engine.commit(of_events(&events)).await));
    assert!(refused_commit(&engine.commit(of_state(vec![put("k", "w")])).await));
    assert!(refused_commit(&engine.trim(&topic, Seq(2)).await));
    assert!(refused_commit(&engine.retain(&topic, &Retention::default()).await));
    assert!(refused_read(&engine.read(&topic, Seq::ZERO, EVERYTHING).await));
    assert!(refused_read(&engine.bounds(&topic).await));
    assert!(refused_read(&engine.topics().await));
    assert!(refused_read(&engine.seek_time(&topic, Timestamp(0)).await));
    assert!(refused_read(&engine.seek_id(&topic, &events[0].id).await));
    assert!(refused_read(&engine.get(&key("k")).await));
    assert!(refused_read(&engine.scan(b"", None, 1).await));
    // It cannot fail; it has nothing more to tell.
    assert!(engine.watch(&topic).changed().await.is_err());
}

async fn twice_nothing_more_happens(store: Store) {
    store.engine().close().await.unwrap();
    store.engine().close().await.unwrap();
    assert!(refused_read(&store.engine().topics().await));
}

async fn health_says_closed_and_capabilities_stay(store: Store) {
    let before = store.engine().capabilities();
    store.engine().close().await.unwrap();
    assert_eq!(store.engine().health().condition, Condition::Closed);
    assert_eq!(store.engine().capabilities(), before);
}

/// Starts many commits, closes in the middle of them and gives those that were answered as stored.
async fn close_while_committing(store: &Store) -> Vec<(Event, Seq)> {
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
    assert!(!stored.is_empty(), "one was seen, so it has to be answered");
    stored
}

async fn what_runs_meanwhile_is_answered(store: Store) {
    close_while_committing(&store).await;
    assert!(refused_read(&store.engine().bounds(&topic("a")).await));
}

async fn what_was_answered_while_closing_is_there_afterwards(mut store: Store) {
    let stored = close_while_committing(&store).await;
    store.restart().await;
    let read = store.read_all("a").await;
    for (event, seq) in stored {
        let index = usize::try_from(seq.0).unwrap() - 1;
        assert_eq!(read[index], as_stored(&event, seq.0));
    }
}
