//! Warns once about each topic whose TTL is shorter than its retention.

use std::collections::HashSet;

use parking_lot::Mutex;

/// The topics that were warned about, each with the TTL in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct TtlWarnings(Mutex<HashSet<(String, u64)>>);

impl TtlWarnings {
    /// Records the warning. Returns `true` if it is new.
    pub(crate) fn insert(&self, topic: &str, ttl_ms: u64) -> bool {
        self.0.lock().insert((topic.to_owned(), ttl_ms))
    }
}
