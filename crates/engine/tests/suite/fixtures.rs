//! Stores of older versions can still be read.
//!
//! The directories under `tests/fixtures` were written with `PROMBUS_WRITE_FIXTURE=<folder>` when their
//! format version was current, and are never rewritten: they stand for the data that users have. In
//! `v2` the catalog records when half of a state file has expired. `v3` has WAL files that were
//! adopted as segments. Frames of `v4` have their arrival time, and its ids are ahead of its clock. Id runs
//! of `v5` have a filter. Topics of `v6` are in packs, and its catalog has edits. In `v7` topics were deleted, one
//! before a checkpoint and one after the last.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use libtest_mimic::Trial;
use prombus_engine::{
    Batch, Bounds, Condition, DiskEngine, DiskOptions, Durability, Engine, Expect, ReadBudget,
    StateKey, StateOp,
};
use prombus_proto::{Event, EventId, Headers, Key, ManualClock, Payload, Seq, Timestamp, Topic};

const WRITE: &str = "PROMBUS_WRITE_FIXTURE";
const EVENTS: u64 = 120;
const TOPICS: [&str; 2] = ["fixture.first", "fixture.second"];
const TRIMMED_BELOW: Seq = Seq(11);
/// Those of `v7` that were deleted.
const DELETED: [&str; 2] = ["fixture.gone", "fixture.just.gone"];

pub(crate) fn trials() -> Vec<Trial> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    ["v1", "v2", "v3", "v4", "v5", "v6", "v7"]
        .map(|version| {
            let fixture = fixtures.join(version);
            Trial::test(format!("disk::fixtures::{version}_is_read"), move || {
                check_fixture(&fixture);
                Ok(())
            })
        })
        .into()
}

/// Writes a store of the current format version if the environment variable is set.
pub(crate) fn write_if_requested() {
    let Some(folder) = std::env::var_os(WRITE) else { return };
    runtime().block_on(write(Path::new(&folder)));
    std::process::exit(0);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn options(folder: &Path) -> DiskOptions {
    DiskOptions {
        wal_file_bytes: 8 << 10,
        segment_bytes: 12 << 10,
        // `v3` to `v5` were written with 1, so that WAL files were adopted as segments.
        min_adopted_extent_bytes: u64::MAX,
        small_files: 0,
        catalog_edits: 3,
        clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
        ..DiskOptions::at(folder)
    }
}

/// Creates event `n` of a topic: all kinds of ids, with and without a key, times out of order.
fn event(topic: &str, n: u64) -> Event {
    let id = match n % 3 {
        0 => format!("text-{n}"),
        1 => format!("0190f5e4-8d4b-7c3a-9f2e-{n:012x}"),
        _ => format!("{:08x}-8d4b-4c3a-9f2e-0123456789ab", n * 0x9E37_79B9 % 0xFFFF_FFFF),
    };
    Event {
        id: EventId::new(&id).unwrap(),
        ts: Timestamp(1_700_000_000_000 + n * 7919 % 1000),
        topic: Topic::new(topic).unwrap(),
        key: n.is_multiple_of(2).then(|| Key::new(&format!("key-{n}")).unwrap()),
        headers: Headers::new(n.is_multiple_of(5).then(|| ("h".to_owned(), "é".to_owned())))
            .unwrap(),
        payload: Payload::parse(Bytes::from(format!("{{\"n\": {n}, \"text\": \"ü\"}}"))).unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
}

fn key(n: u64) -> StateKey {
    StateKey::new(format!("fixture/{n:03}")).unwrap()
}

/// Puts, deletes or expires a value, depending on `n`.
fn state_op(n: u64) -> StateOp {
    if n % 4 == 3 {
        return StateOp::Delete { key: key(n - 1), expect: Expect::Any };
    }
    StateOp::Put {
        key: key(n),
        value: Bytes::from(format!("value {n}")),
        expires_at: n.is_multiple_of(8).then_some(Timestamp(1_700_000_000_001)),
        expect: Expect::Absent,
    }
}

async fn write(folder: &Path) {
    let engine = DiskEngine::open(&options(folder)).unwrap();
    let fill = async |name| {
        let events = (1..=40).map(|n| event(name, n).encode()).collect();
        engine.commit(Batch::of_events(events, Durability::Fsync)).await.unwrap();
    };
    fill(DELETED[0]).await;
    // One topic after the other, so that most WAL files have one topic.
    for name in TOPICS {
        if name == TOPICS[1] {
            let deletion = Batch::of_deletion(Topic::new(DELETED[0]).unwrap(), vec![]);
            engine.commit(deletion).await.unwrap();
        }
        for first in (1..=EVENTS).step_by(6) {
            let numbers = first..first + 6;
            let events = numbers.clone().map(|n| event(name, n).encode()).collect();
            let state = if name == TOPICS[0] { numbers.map(state_op).collect() } else { vec![] };
            let batch = Batch { state, ..Batch::of_events(events, Durability::Fsync) };
            engine.commit(batch).await.unwrap();
        }
    }
    engine.trim(&Topic::new(TOPICS[1]).unwrap(), TRIMMED_BELOW).await.unwrap();
    fill(DELETED[1]).await;
    engine.commit(Batch::of_deletion(Topic::new(DELETED[1]).unwrap(), vec![])).await.unwrap();
    // Waits for the background checkpoints; the rest stays in the log, as after a crash.
    while fs::read_dir(folder.join("wal")).unwrap().count() > 1 {
        tokio::task::yield_now().await;
    }
    std::process::exit(0);
}

fn check_fixture(fixture: &Path) {
    let folder = tempfile::tempdir().unwrap();
    copy(fixture, folder.path());
    runtime().block_on(async {
        for round in 0..2 {
            let engine = DiskEngine::open(&options(folder.path())).unwrap();
            let health = engine.health();
            assert_eq!((health.condition, health.incidents), (Condition::Healthy, vec![]));
            check(&engine, round).await;
            engine.close().await.unwrap();
        }
    });
}

async fn check(engine: &DiskEngine, added: u64) {
    let topics: Vec<_> = engine.topics().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(topics, TOPICS);
    for name in DELETED {
        let bounds = engine.bounds(&Topic::new(name).unwrap()).await.unwrap();
        assert_eq!(bounds, Bounds::EMPTY);
    }
    for name in TOPICS {
        let topic = Topic::new(name).unwrap();
        let first = if name == TOPICS[1] { TRIMMED_BELOW } else { Seq::FIRST };
        let page = engine.read(&topic, Seq::FIRST, ReadBudget::of_events(1000)).await.unwrap();
        let expected: Vec<_> = (first.0..=EVENTS + added)
            .map(|n| {
                let mut json = Vec::new();
                event(name, n).encode().write_json(Seq(n), &mut json);
                String::from_utf8(json).unwrap()
            })
            .collect();
        let found: Vec<_> = page
            .events
            .iter()
            .map(|event| String::from_utf8(event.json.to_vec()).unwrap())
            .collect();
        assert_eq!(found, expected);
        for n in first.0..=EVENTS {
            let event = event(name, n);
            assert_eq!(engine.seek_id(&topic, &event.id).await.unwrap(), Some(Seq(n)), "{event:?}");
            let again = Batch::of_events(vec![event.encode()], Durability::Buffered);
            assert!(engine.commit(again).await.unwrap().positions[0].duplicate);
        }
        let next =
            Batch::of_events(vec![event(name, EVENTS + added + 1).encode()], Durability::Fsync);
        assert_eq!(engine.commit(next).await.unwrap().positions[0].seq, Seq(EVENTS + added + 1));
    }
    for n in 1..=EVENTS {
        let entry = engine.get(&key(n)).await.unwrap();
        let is_present = n % 4 != 3 && n % 4 != 2;
        let expected = is_present.then(|| Bytes::from(format!("value {n}")));
        assert_eq!(entry.map(|entry| entry.value), expected, "{n}");
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
