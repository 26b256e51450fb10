//! The disk engine: with default options, with files so small that every case involves segments,
//! merges and retention, with topics that share packs, and inside the fault-injecting wrapper.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::{Capabilities, DiskEngine, DiskOptions, Durability, Engine};
use prombus_proto::{ManualClock, Timestamp};
use tempfile::TempDir;

use crate::faulty::FaultySubject;

pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    atomic_across_topics: true,
    several_gateways: false,
    gathers_commits: true,
    survives_restart: true,
    max_durability: Durability::Fsync,
};

pub(crate) fn trials() -> Vec<Trial> {
    [
        conformance::trials("disk", CAPABILITIES, || DiskSubject::new(with_defaults)),
        conformance::trials("disk_in_small_files", CAPABILITIES, || {
            DiskSubject::new(in_small_files)
        }),
        conformance::trials("disk_with_adopted_wal", CAPABILITIES, || {
            DiskSubject::new(with_adopted_wal)
        }),
        conformance::trials("disk_in_packs", CAPABILITIES, || DiskSubject::new(in_packs)),
        conformance::trials("faulty_over_disk", CAPABILITIES, || {
            FaultySubject(DiskSubject::new(in_small_files))
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn with_defaults(_: &mut DiskOptions) {}

/// A log file holds a few events, a segment a few more, and at most three files are open.
pub(crate) fn in_small_files(options: &mut DiskOptions) {
    options.wal_file_bytes = 2 << 10;
    options.segment_bytes = 4 << 10;
    options.open_files = 3;
}

/// Like [`in_small_files`], and WAL files that mostly contain one topic are adopted as its segments.
pub(crate) fn with_adopted_wal(options: &mut DiskOptions) {
    in_small_files(options);
    options.min_adopted_extent_bytes = 1;
}

/// Like [`in_small_files`], and every topic is packed until it is larger than a WAL file.
fn in_packs(options: &mut DiskOptions) {
    in_small_files(options);
    options.small_files = 0;
    options.packed_bytes = 3 << 10;
    options.catalog_edits = 3;
}

struct DiskSubject {
    folder: TempDir,
    clock: ManualClock,
    adjust: fn(&mut DiskOptions),
}

impl DiskSubject {
    fn new(adjust: fn(&mut DiskOptions)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, clock: ManualClock::at(Timestamp(1_700_000_000_000)), adjust }
    }
}

#[async_trait]
impl Subject for DiskSubject {
    fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        let mut options = DiskOptions::at(self.folder.path());
        options.clock = Arc::new(self.clock.clone());
        (self.adjust)(&mut options);
        Arc::new(DiskEngine::open(&options).expect("the store opens"))
    }
}
