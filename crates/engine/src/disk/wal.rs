//! The write-ahead log: numbered files of frames, each frame one atomic group of commits.

pub(crate) mod coalesced_read;
pub(crate) mod file;
pub(crate) mod frame;
pub(crate) mod read_ahead;
pub(crate) mod scan;
pub(crate) mod scanned_frame;

use std::sync::Arc;

use prombus_proto::{Seq, Timestamp};

use self::file::WalFile;

/// The size at which an extent is closed. A reader that starts in the middle of an extent skips the
/// records before.
pub(crate) const EXTENT_BYTES: usize = 16 << 10;

/// Consecutive records of one topic that lie side by side in a WAL file.
#[derive(Clone, Debug)]
pub(crate) struct WalExtent {
    pub(crate) file: Arc<WalFile>,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) first: Seq,
    pub(crate) count: u32,
    pub(crate) latest_ts: Timestamp,
    /// What the clock said when they were stored.
    pub(crate) arrived: Timestamp,
    /// The newest monotonic id of all events of the topic before these.
    pub(crate) newest_id_before: u128,
    /// The same, these included.
    pub(crate) newest_id: u128,
}

impl WalExtent {
    pub(crate) fn last(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.count) - 1)
    }

    /// The file offset at which it ends.
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }
}

/// An extent of a frame, before it is shown to readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameExtent {
    /// The index of the frame's section that it is part of.
    pub(crate) section: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) first: Seq,
    pub(crate) count: u32,
    pub(crate) latest_ts: Timestamp,
    /// The newest monotonic id of the events before it, at least of those in its section.
    pub(crate) newest_id_before: u128,
    /// The same, its own events included.
    pub(crate) newest_id: u128,
}
