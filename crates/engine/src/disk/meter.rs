//! What the threads of a disk engine measure, and the figures that operators see.

use std::array;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::shared::Shared;
use super::storage::layout::Layout;
use crate::figures::{Durations, Figures, WalBacklog};

/// The upper bounds of the durations of checkpoints.
const CHECKPOINT_MS: [u64; 12] =
    [10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000];
/// What `st_blocks` counts in.
const BLOCK_BYTES: u64 = 512;

/// What is counted as it happens, because finding it out would take long.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Bytes of the WAL file that is being written.
    open_wal_bytes: AtomicU64,
    /// Bytes of segments that have files of their own, and of their indexes.
    segment_bytes: AtomicU64,
    /// Checkpoints that took no longer than each of [`CHECKPOINT_MS`], but longer than the one before.
    checkpoints: [AtomicU64; CHECKPOINT_MS.len()],
    longer_checkpoints: AtomicU64,
    checkpoint_micros: AtomicU64,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            open_wal_bytes: AtomicU64::new(0),
            segment_bytes: AtomicU64::new(0),
            checkpoints: array::from_fn(|_| AtomicU64::new(0)),
            longer_checkpoints: AtomicU64::new(0),
            checkpoint_micros: AtomicU64::new(0),
        }
    }
}

impl Meter {
    pub(crate) fn set_open_wal_bytes(&self, bytes: u64) {
        self.open_wal_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_segment_bytes(&self, bytes: u64) {
        self.segment_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn checkpointed_in(&self, time: Duration) {
        let bound = CHECKPOINT_MS.iter().position(|ms| time <= Duration::from_millis(*ms));
        let bucket = bound.map_or(&self.longer_checkpoints, |bound| &self.checkpoints[bound]);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.checkpoint_micros.fetch_add(micros, Ordering::Relaxed);
        bucket.fetch_add(1, Ordering::Relaxed);
    }

    fn checkpoints(&self) -> Durations {
        let mut count = 0;
        let buckets = CHECKPOINT_MS.iter().zip(&self.checkpoints).map(|(ms, within)| {
            count += within.load(Ordering::Relaxed);
            (Duration::from_millis(*ms), count)
        });
        let buckets = buckets.collect();
        count += self.longer_checkpoints.load(Ordering::Relaxed);
        let sum = Duration::from_micros(self.checkpoint_micros.load(Ordering::Relaxed));
        Durations { buckets, count, sum }
    }
}

/// Takes the figures of a store. Looks at the size of every file except those of topics, of which there may be
/// very many.
pub(crate) fn figures(shared: &Shared) -> Figures {
    let (meter, layout) = (&shared.meter, &shared.layout);
    let mut stored_bytes = vec![("segments", meter.segment_bytes.load(Ordering::Relaxed))];
    stored_bytes.extend(folders(layout).map(|(kind, folder)| (kind, bytes_in(&folder))));
    let catalog = [layout.catalog(), layout.catalog_mirror(), layout.reserve()];
    let catalog = catalog.iter().map(|path| fs::metadata(path).map_or(0, |file| bytes_of(&file)));
    stored_bytes.push(("catalog", bytes_in(&layout.edits()) + catalog.sum::<u64>()));
    let (full_files, full_bytes) = shared.pending_checkpoints.waiting();
    Figures {
        stored_bytes,
        free_bytes: free_bytes(layout.root()).ok(),
        wal_backlog: Some(WalBacklog {
            full_files: full_files as u64,
            max_full_files: shared.options.wal_files_waiting as u64,
            bytes: full_bytes + meter.open_wal_bytes.load(Ordering::Relaxed),
        }),
        checkpoints: Some(meter.checkpoints()),
        open_files: Some(shared.file_cache.open_files() as u64),
    }
}

fn folders(layout: &Layout) -> impl Iterator<Item = (&'static str, std::path::PathBuf)> {
    [
        ("wal", layout.wal()),
        ("packs", layout.packs()),
        ("ids", layout.ids()),
        ("state", layout.state()),
        ("quarantine", layout.quarantine()),
    ]
    .into_iter()
}

/// A file may be removed at any time, and a folder may be missing: what cannot be seen takes no space.
fn bytes_in(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| bytes_of(&file)).sum()
}

/// Preallocated space counts, although nothing is written to it yet.
fn bytes_of(file: &fs::Metadata) -> u64 {
    file.len().max(file.blocks() * BLOCK_BYTES)
}

fn free_bytes(folder: &Path) -> io::Result<u64> {
    let system = rustix::fs::statvfs(folder)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_by_their_bounds() {
        let meter = Meter::default();
        for ms in [1, 10, 11, 60_000, 60_001] {
            meter.checkpointed_in(Duration::from_millis(ms));
        }
        let durations = meter.checkpoints();
        assert_eq!(durations.buckets[0], (Duration::from_millis(10), 2));
        assert_eq!(durations.buckets[1], (Duration::from_millis(25), 3));
        assert_eq!(durations.buckets[11], (Duration::from_secs(60), 4));
        assert_eq!((durations.count, durations.sum), (5, Duration::from_millis(120_023)));
    }
}
