//! The requests that one write to the log stores.

use super::request::{Outcome, Request};
use super::staging::Staging;
use crate::CommitError;

/// The most bytes of one frame.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// The same if no request asks for a sync, which is what makes large batches worthwhile. A smaller
/// one is written while it is still in the processor's cache, and while committers prepare the next:
/// with all of them in one batch, they would wait for the journal, and then the journal for them.
const MAX_UNSYNCED_BATCH_BYTES: usize = 256 << 10;
const MAX_BATCH_REQUESTS: usize = 8192;

/// Requests that are staged together, stored as one frame and answered together.
pub(super) struct CommitBatch {
    pub(super) waiting: Vec<(Request, Outcome)>,
    pub(super) staging: Staging,
    pub(super) bytes: usize,
    pub(super) wants_sync: bool,
    /// Why every request is refused, if the engine takes no commits now.
    pub(super) refusal: Option<CommitError>,
}

impl CommitBatch {
    pub(super) fn new(staging: Staging, refusal: Option<CommitError>) -> Self {
        Self { waiting: Vec::new(), staging, bytes: 0, wants_sync: false, refusal }
    }

    pub(super) fn push(&mut self, request: Request, outcome: Outcome) {
        self.bytes += request.bytes();
        self.wants_sync |= request.wants_sync();
        self.waiting.push((request, outcome));
    }

    pub(super) fn is_full(&self) -> bool {
        let max_bytes = if self.wants_sync { MAX_BATCH_BYTES } else { MAX_UNSYNCED_BATCH_BYTES };
        self.waiting.len() >= MAX_BATCH_REQUESTS || self.bytes >= max_bytes
    }
}
