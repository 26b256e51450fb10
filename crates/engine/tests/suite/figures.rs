//! The figures of the disk engine say what is in its folder.

use std::fs;
use std::path::Path;

use libtest_mimic::Trial;
use prombus_engine::{
    Batch, DiskEngine, DiskOptions, Durability, Engine, Figures, Retention, StateKey, StateOp,
};
use prombus_proto::Seq;

use crate::damage_store::{event, temporary_folder, topic};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 3] = [
        ("bytes_are_those_of_the_files", bytes_are_those_of_the_files),
        (
            "the_backlog_is_what_no_checkpoint_has_moved",
            the_backlog_is_what_no_checkpoint_has_moved,
        ),
        ("quarantined_files_count", quarantined_files_count),
    ];
    let trial = |(name, test): (&str, fn())| {
        Trial::test(format!("disk::figures::{name}"), move || {
            test();
            Ok(())
        })
    };
    tests.into_iter().map(trial).collect()
}

/// With small WAL files, of which only one becomes a segment as a whole.
fn options(folder: &Path) -> DiskOptions {
    DiskOptions { wal_file_bytes: 64 << 10, ..DiskOptions::at(folder) }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn stored(figures: &Figures, kind: &str) -> u64 {
    let found = figures.stored_bytes.iter().find(|(known, _)| *known == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {figures:?}")).1
}

/// The bytes of all files below `folder`, by the length of each.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => bytes_below(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

fn bytes_are_those_of_the_files() {
    let (runtime, folder) = (runtime(), temporary_folder());
    runtime.block_on(async {
        let options = options(folder.path());
        let engine = DiskEngine::open(&options).unwrap();
        // One topic of many bytes, and so many small ones that they share packs.
        for round in 0..40 {
            let large = (0..20).map(|number| event("large", round * 20 + number, 1000));
            let small = (0..100).map(|number| event(&format!("small{number}"), round, 100));
            let mut batch = Batch::of_events(large.chain(small).collect(), Durability::Fsync);
            batch.state.push(StateOp::Put {
                key: StateKey::new(format!("key/{round}")).unwrap(),
                value: "value".into(),
                expires_at: None,
                expect: prombus_engine::Expect::Any,
            });
            engine.commit(batch).await.unwrap();
        }
        engine.close().await.unwrap();
        drop(engine);

        let engine = DiskEngine::open(&options).unwrap();
        let figures = engine.figures().await;
        for (kind, part) in
            [("segments", "topics"), ("packs", "packs"), ("ids", "ids"), ("state", "state")]
        {
            let (seen, on_disk) = (stored(&figures, kind), bytes_below(&folder.path().join(part)));
            assert!(on_disk > 0, "{kind}");
            // Files take whole blocks, and a segment may have been longer before.
            let files = 2 * 4096 * (1 + fs::read_dir(folder.path().join(part)).unwrap().count());
            assert!(seen.abs_diff(on_disk) <= files as u64, "{kind}: {seen} for {on_disk}");
        }
        assert_eq!(stored(&figures, "quarantine"), 0);
        assert!(stored(&figures, "catalog") > 0);
        assert!(figures.free_bytes.unwrap() > 0);
        let before = stored(&figures, "segments");

        // What is read stays open; what is trimmed is gone.
        engine
            .read(&topic("large"), Seq(1), prombus_engine::ReadBudget::of_events(1))
            .await
            .unwrap();
        assert!(engine.figures().await.open_files.unwrap() > 0);
        engine.trim(&topic("large"), Seq(u64::MAX)).await.unwrap();
        let rule = Retention { max_age_ms: None, max_bytes: Some(1), revision: 1 };
        engine.retain(&topic("large"), &rule).await.unwrap();
        engine.close().await.unwrap();
        drop(engine);
        let engine = DiskEngine::open(&options).unwrap();
        let after = stored(&engine.figures().await, "segments");
        assert!(after < before / 2, "{after} after {before}");
    });
}

fn the_backlog_is_what_no_checkpoint_has_moved() {
    let (runtime, folder) = (runtime(), temporary_folder());
    runtime.block_on(async {
        let options = options(folder.path());
        let engine = DiskEngine::open(&options).unwrap();
        let commit = async |number: u64| {
            let batch = Batch::of_events(vec![event("t", number, 1000)], Durability::Fsync);
            engine.commit(batch).await.unwrap();
        };
        let backlog = async || engine.figures().await.wal_backlog.unwrap();
        assert_eq!((backlog().await.full_files, backlog().await.bytes), (0, 0));
        commit(0).await;
        let one = backlog().await;
        assert!(one.bytes > 1000 && one.bytes < 4000, "{one:?}");
        assert_eq!(one.max_full_files, 3);
        for number in 1..1000 {
            commit(number).await;
            let now = backlog().await;
            // The journal waits at the limit; the file that is being written comes on top.
            assert!(now.full_files <= 3 && now.bytes <= 4 * (64 << 10), "{now:?}");
        }
        engine.close().await.unwrap();
        let figures = engine.figures().await;
        let rest = figures.wal_backlog.unwrap();
        assert_eq!((rest.full_files, rest.bytes), (0, 0), "closing checkpoints everything");
        let checkpoints = figures.checkpoints.unwrap();
        assert!(checkpoints.count >= 10, "{checkpoints:?}");
        assert!(!checkpoints.sum.is_zero());
        let cumulative = checkpoints.buckets.iter().map(|(_, count)| *count);
        assert!(cumulative.is_sorted() && checkpoints.buckets.iter().is_sorted());
    });
}

fn quarantined_files_count() {
    let (runtime, folder) = (runtime(), temporary_folder());
    runtime.block_on(async {
        let options = options(folder.path());
        let engine = DiskEngine::open(&options).unwrap();
        assert_eq!(stored(&engine.figures().await, "quarantine"), 0);
        fs::write(folder.path().join("quarantine/1.wal"), vec![1; 100_000]).unwrap();
        assert!(stored(&engine.figures().await, "quarantine") >= 100_000);
    });
}
