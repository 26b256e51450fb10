use std::sync::Arc;

use bytes::Bytes;
use prombus_proto::{EventId, ManualClock, Seq, Timestamp, Topic};

use super::{FaultReport, Faults, FaultyEngine};
use crate::{
    Batch, CommitError, Durability, Engine, Expect, MemoryEngine, ReadBudget, StateKey, StateOp,
    Unavailable,
};

fn faulty() -> (Arc<FaultyEngine>, Faults) {
    let faults = Faults::none();
    let inner = Arc::new(MemoryEngine::new(Arc::new(ManualClock::default())));
    (Arc::new(FaultyEngine::new(inner, faults.clone())), faults)
}

fn key() -> StateKey {
    StateKey::new("k").unwrap()
}

fn put(value: &'static str) -> Batch {
    let op = StateOp::Put {
        key: key(),
        value: Bytes::from_static(value.as_bytes()),
        expires_at: None,
        expect: Expect::Any,
    };
    Batch::of_state(vec![op], Durability::Fsync)
}

async fn value(engine: &FaultyEngine) -> Option<Bytes> {
    engine.get(&key()).await.unwrap().map(|entry| entry.value)
}

fn is_injected<T>(result: &Result<T, CommitError>) -> bool {
    matches!(result, Err(CommitError::Unavailable(Unavailable::Injected(_))))
}

#[tokio::test]
async fn a_commit_that_fails_before_is_not_stored() {
    let (engine, faults) = faulty();
    faults.fail_commits_before(2);
    assert!(is_injected(&engine.commit(put("1")).await));
    assert!(is_injected(&engine.commit(put("2")).await));
    assert_eq!(value(&engine).await, None);
    engine.commit(put("3")).await.unwrap();
    assert_eq!(value(&engine).await.unwrap(), "3");
    assert_eq!(
        faults.report(),
        FaultReport { commits_stored: 1, commits_failed_before: 2, ..FaultReport::default() }
    );
}

#[tokio::test]
async fn a_commit_that_fails_after_is_stored() {
    let (engine, faults) = faulty();
    faults.fail_commits_after(1);
    assert!(is_injected(&engine.commit(put("1")).await));
    assert_eq!(value(&engine).await.unwrap(), "1");
    engine.commit(put("2")).await.unwrap();
    assert_eq!(faults.report().commits_stored, 2);
    assert_eq!(faults.report().commits_failed_after, 1);
}

#[tokio::test]
async fn a_refused_commit_does_not_use_up_a_lost_answer() {
    let (engine, faults) = faulty();
    faults.fail_commits_after(1);
    let refused = Batch { expected_last: vec![(Topic::new("a").unwrap(), Seq(9))], ..put("1") };
    assert!(matches!(engine.commit(refused).await, Err(CommitError::Conflict(_))));
    assert!(is_injected(&engine.commit(put("1")).await));
}

#[tokio::test]
async fn reads_of_every_kind_fail() {
    let (engine, faults) = faulty();
    let topic = Topic::new("a").unwrap();
    let id = EventId::new("1").unwrap();
    faults.fail_reads(7);
    let failed = [
        engine.read(&topic, Seq::ZERO, ReadBudget::of_events(1)).await.is_err(),
        engine.bounds(&topic).await.is_err(),
        engine.topics().await.is_err(),
        engine.seek_time(&topic, Timestamp(0)).await.is_err(),
        engine.seek_id(&topic, &id).await.is_err(),
        engine.get(&key()).await.is_err(),
        engine.scan(b"", None, 1).await.is_err(),
    ];
    assert_eq!(failed, [true; 7]);
    assert!(engine.bounds(&topic).await.is_ok());
    assert_eq!(faults.report().reads_failed, 7);
}

#[tokio::test]
async fn commits_wait_at_the_gate_until_it_opens() {
    let (engine, faults) = faulty();
    faults.shut_gate();
    let commit = tokio::spawn({
        let engine = engine.clone();
        async move { engine.commit(put("1")).await }
    });
    faults.until_waiting(1).await;
    assert_eq!(value(&engine).await, None);
    assert!(!commit.is_finished());
    faults.open_gate();
    commit.await.unwrap().unwrap();
    assert_eq!(value(&engine).await.unwrap(), "1");
    assert_eq!(faults.report().commits_waiting, 0);
}

#[tokio::test]
async fn a_cancelled_commit_leaves_the_gate() {
    let (engine, faults) = faulty();
    faults.shut_gate();
    let commit = tokio::spawn(async move { engine.commit(put("1")).await });
    faults.until_waiting(1).await;
    commit.abort();
    assert!(commit.await.unwrap_err().is_cancelled());
    assert_eq!(faults.report().commits_waiting, 0);
}

#[tokio::test]
async fn healing_switches_off_every_fault() {
    let (engine, faults) = faulty();
    faults.fail_commits_before(usize::MAX);
    faults.fail_commits_after(usize::MAX);
    faults.fail_reads(usize::MAX);
    for _ in 0..3 {
        assert!(is_injected(&engine.commit(put("1")).await));
        assert!(engine.topics().await.is_err());
    }
    faults.shut_gate();
    faults.heal();
    engine.commit(put("1")).await.unwrap();
    assert_eq!(value(&engine).await.unwrap(), "1");
}

#[tokio::test]
async fn a_spared_prefix_neither_fails_nor_uses_up_a_fault() {
    let faults = Faults::none();
    let inner = Arc::new(MemoryEngine::new(Arc::new(ManualClock::default())));
    let engine = FaultyEngine::new(inner, faults.clone())
        .sparing_commits_of("spared/")
        .sparing_reads_of("spared/");
    let spared = StateKey::new("spared/k").unwrap();
    let of = |keys: &[&StateKey]| {
        let put = |key: &&StateKey| StateOp::Put {
            key: (*key).clone(),
            value: Bytes::new(),
            expires_at: None,
            expect: Expect::Any,
        };
        Batch::of_state(keys.iter().map(put).collect(), Durability::Fsync)
    };
    faults.fail_commits_before(1);
    faults.fail_reads(2);
    engine.commit(of(&[&spared])).await.unwrap();
    engine.get(&spared).await.unwrap();
    engine.scan(b"spared/", None, 1).await.unwrap();
    assert!(is_injected(&engine.commit(of(&[&spared, &key()])).await));
    assert!(engine.get(&key()).await.is_err());
    assert!(engine.scan(b"", None, 1).await.is_err());
}
