//! Expired state is removed from disk without any commit.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::Trial;
use prombus_engine::{
    Batch, Condition, DiskEngine, DiskOptions, Durability, Engine, Expect, StateKey, StateOp,
};
use prombus_proto::{ManualClock, Timestamp};

/// Longer than anything here takes, unless the engine hangs.
const TIMEOUT: Duration = Duration::from_secs(60);
const MARKS: u64 = 30_000;
const NOW: u64 = 1_700_000_000_000;

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("disk::expired_state::is_removed_without_any_commit", || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
            .block_on(is_removed_without_any_commit());
        Ok(())
    })]
}

fn options(folder: &Path, clock: &ManualClock) -> DiskOptions {
    let clock = Arc::new(clock.clone());
    DiskOptions { wal_file_bytes: 64 << 10, clock, ..DiskOptions::at(folder) }
}

fn key(kind: &str, n: u64) -> StateKey {
    StateKey::new(format!("{kind}/{n:06}")).unwrap()
}

/// Writes marks that expire one after another, and cursors between them that never do.
async fn fill(engine: &DiskEngine) {
    for chunk in (0..MARKS).collect::<Vec<_>>().chunks(100) {
        let mark = |n: &u64| StateOp::Put {
            key: key("mark", *n),
            value: Bytes::from_static(b"1"),
            expires_at: Some(Timestamp(NOW + 1000 + n)),
            expect: Expect::Any,
        };
        let cursor = StateOp::Put {
            key: key("cursor", chunk[0]),
            value: Bytes::from_static(b"a cursor"),
            expires_at: None,
            expect: Expect::Any,
        };
        let state = chunk.iter().map(mark).chain([cursor]).collect();
        engine.commit(Batch::of_state(state, Durability::Buffered)).await.unwrap();
    }
}

fn bytes_in(folder: &Path) -> u64 {
    // A file may disappear between the listing and the lookup.
    let sizes = std::fs::read_dir(folder).unwrap().filter_map(|file| file.ok()?.metadata().ok());
    sizes.map(|file| file.len()).sum()
}

async fn is_removed_without_any_commit() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(Timestamp(NOW));
    let engine = DiskEngine::open(&options(folder.path(), &clock)).unwrap();
    fill(&engine).await;
    let state = folder.path().join("state");
    let all = |state: &Path| bytes_in(state) > MARKS * 20;
    until(|| all(&state)).await;
    let full = bytes_in(&state);
    clock.set(Timestamp(NOW + 1000 + MARKS + 2000));
    until(|| bytes_in(&state) < full / 10).await;
    let mut engine = engine;
    for _ in 0..2 {
        for n in (0..MARKS).step_by(100) {
            assert!(engine.get(&key("mark", n)).await.unwrap().is_none());
            assert!(engine.get(&key("cursor", n)).await.unwrap().is_some(), "{n}");
        }
        assert_eq!(engine.health().condition, Condition::Healthy);
        engine.close().await.unwrap();
        engine = DiskEngine::open(&options(folder.path(), &clock)).unwrap();
    }
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await.expect("the condition holds before the timeout");
}
