//! The settings of a disk engine.

use std::path::PathBuf;
use std::sync::Arc;

use prombus_proto::{Clock, SystemClock};

use super::storage::faults::StorageFaults;

/// The settings of a disk engine. [`DiskOptions::at`] returns the defaults.
#[derive(Clone)]
pub struct DiskOptions {
    /// The data folder; created if it does not exist.
    pub folder: PathBuf,
    /// The clock that decides expiry and retention.
    pub clock: Arc<dyn Clock>,
    /// The size at which a file of the write-ahead log is sealed and handed to the checkpoint
    /// thread.
    pub wal_file_bytes: u64,
    /// How many sealed WAL files may wait for their checkpoint before commits block. Together
    /// with the file size, this bounds memory and the time to reopen after a crash.
    pub wal_files_waiting: usize,
    /// The size at which a new segment is started. Retention drops whole segments.
    pub segment_bytes: u64,
    /// A sealed WAL file becomes a segment as it is if at least half of it are events of one
    /// topic, in extents of at least this many bytes on average. With smaller extents a reader
    /// would spend its time skipping what lies between them.
    pub min_adopted_extent_bytes: u64,
    /// The age at which a new segment is started if retention limits the age of the topic's events,
    /// so that it also reaches those of a topic with little traffic.
    pub segment_age_ms: u64,
    /// A topic with fewer bytes than this in a WAL file is small: see `small_files`.
    pub packed_bytes: u64,
    /// How many small topics of a WAL file get segment files of their own. If there are more, all of
    /// them share one pack.
    pub small_files: usize,
    /// After how many checkpoints the whole catalog is written again, and not only what changed.
    pub catalog_edits: u64,
    /// How many segment and index files stay open for reading.
    pub open_files: usize,
    /// Start although state is damaged: keys in damaged pages are lost, everything else is served.
    pub start_damaged: bool,
    /// Makes the storage fail on demand, for tests.
    pub faults: Arc<StorageFaults>,
}

impl DiskOptions {
    /// The defaults, with data in `folder` and the system clock.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            clock: Arc::new(SystemClock),
            wal_file_bytes: 64 << 20,
            wal_files_waiting: 3,
            segment_bytes: 64 << 20,
            min_adopted_extent_bytes: 4 << 10,
            segment_age_ms: 24 * 60 * 60 * 1000,
            packed_bytes: 32 << 10,
            small_files: 64,
            catalog_edits: 64,
            open_files: 256,
            start_damaged: false,
            faults: Arc::default(),
        }
    }
}
