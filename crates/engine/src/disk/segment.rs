//! A topic's segments: files of records, each with a sparse index beside it.

pub(crate) mod adopted_wal;
pub(crate) mod reader;
pub(crate) mod sparse_index;
pub(crate) mod writer;
