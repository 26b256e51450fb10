//! How a disk engine is set up.

use std::path::PathBuf;
use std::sync::Arc;

use prombus_proto::{Clock, SystemClock};

use crate::disk::storage_faults::StorageFaults;

/// How a disk engine is set up. [`DiskOptions::at`] has the defaults.
#[derive(Clone)]
pub struct DiskOptions {
    /// The data folder; made if it is not there.
    pub folder: PathBuf,
    /// What time it is, for expiry and retention.
    pub clock: Arc<dyn Clock>,
    /// How large a file of the write-ahead log becomes before the next is begun and this one is
    /// moved into the segments.
    pub wal_file_bytes: u64,
    /// How many full files of the write-ahead log may wait to be moved before commits wait, too.
    /// With the file size it bounds memory and the time to reopen after a crash.
    pub wal_files_waiting: usize,
    /// How large a segment becomes before the next is begun. Retention drops whole segments.
    pub segment_bytes: u64,
    /// A full file of the write-ahead log becomes a segment as it is where at least half of it are events
    /// of one topic, and so many bytes of them lie in a row on average. Others are between the rows, and
    /// to find the way over them takes time.
    pub kept_row_bytes: u64,
    /// How old a segment becomes before the next is begun, so that a quiet topic's events go, too.
    pub segment_age_ms: u64,
    /// How many segment and index files are kept open.
    pub open_files: usize,
    /// Makes the storage fail, for tests.
    pub faults: Arc<StorageFaults>,
}

impl DiskOptions {
    /// The defaults, in `folder`, on the machine's clock.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            clock: Arc::new(SystemClock),
            wal_file_bytes: 64 << 20,
            wal_files_waiting: 3,
            segment_bytes: 64 << 20,
            kept_row_bytes: 4 << 10,
            segment_age_ms: 24 * 60 * 60 * 1000,
            open_files: 256,
            faults: Arc::default(),
        }
    }
}
