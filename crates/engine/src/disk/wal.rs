//! The write-ahead log: numbered files of frames, each frame one atomic group of commits.

pub(crate) mod coalesced_read;
pub(crate) mod file;
pub(crate) mod frame;
pub(crate) mod read_ahead;
pub(crate) mod scan;
