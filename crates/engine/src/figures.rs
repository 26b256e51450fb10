//! What an engine measures about itself, for operators.

use std::time::Duration;

/// A snapshot of what an engine measures about itself. An engine leaves out what it does not know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Bytes that the store takes, by kind of file or data. The kinds are the same each time.
    pub stored_bytes: Vec<(&'static str, u64)>,
    /// Bytes that are free where the store is.
    pub free_bytes: Option<u64>,
    /// What is only in the write-ahead log.
    pub wal_backlog: Option<WalBacklog>,
    /// How long checkpoints took since the engine was opened.
    pub checkpoints: Option<Durations>,
    /// Files of the store that are kept open for reading.
    pub open_files: Option<u64>,
}

/// The part of the write-ahead log that is not checkpointed: the work of a restart after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalBacklog {
    /// Full files that wait for their checkpoint.
    pub full_files: u64,
    /// From this number of full files on, commits wait.
    pub max_full_files: u64,
    /// Bytes of all frames, those in the file that is being written included.
    pub bytes: u64,
}

/// A histogram of durations.
#[derive(Clone, Debug, PartialEq)]
pub struct Durations {
    /// Upper bounds, each with the number of durations up to it.
    pub buckets: Vec<(Duration, u64)>,
    /// The number of all durations.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
}
