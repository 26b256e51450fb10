//! Decides how long the journal waits for more requests before it writes a batch.

use std::time::{Duration, Instant};

use super::commit_batch::CommitBatch;

/// Adapts to the committers.
///
/// Committers that were answered together come back together, but not all at once: the first to
/// return would get a sync of its own, and the others would wait for it. So a batch waits for as
/// many requests as the last one had, as long as they keep arriving, and never longer than a sync
/// takes. A single committer never waits, and neither does one that asks for no sync.
#[derive(Debug, Default)]
pub(super) struct GatherPace {
    last_batch: usize,
    last_sync: Duration,
}

/// When to stop waiting.
pub(super) struct GatherDeadline {
    end: Instant,
    next_arrival: Instant,
}

impl GatherPace {
    /// The next request has to arrive within this fraction of a sync.
    const ARRIVALS_PER_SYNC: u32 = 3;
    const MAX_WAIT: Duration = Duration::from_millis(2);
    /// A batch of this size is worth a sync of its own and does not wait: its committer has already
    /// batched on its side, and yielding for others cost a tenth of a commit.
    const WORTH_A_SYNC: usize = 32 << 10;
    /// Polling for fewer requests wastes processor time.
    const MIN_BATCH_TO_POLL: usize = 8;

    pub(super) fn deadline(&self) -> GatherDeadline {
        let now = now();
        let max_wait = self.max_wait();
        let next_arrival = now + max_wait / Self::ARRIVALS_PER_SYNC;
        GatherDeadline { end: now + max_wait, next_arrival }
    }

    pub(super) fn arrived(&self, deadline: &mut GatherDeadline) {
        deadline.next_arrival = now() + self.max_wait() / Self::ARRIVALS_PER_SYNC;
    }

    pub(super) fn expects_more(&self, batch: &CommitBatch, deadline: &GatherDeadline) -> bool {
        batch.waiting.len() < self.last_batch
            && batch.bytes < Self::WORTH_A_SYNC
            && now() < deadline.end.min(deadline.next_arrival)
    }

    pub(super) fn should_poll(&self, deadline: &GatherDeadline) -> bool {
        self.last_batch >= Self::MIN_BATCH_TO_POLL && now() < deadline.end
    }

    pub(super) fn answered(&mut self, requests: usize, synced: bool) {
        self.last_batch = if synced { requests } else { 0 };
    }

    pub(super) fn synced_in(&mut self, time: Duration) {
        self.last_sync = time;
    }

    fn max_wait(&self) -> Duration {
        self.last_sync.min(Self::MAX_WAIT)
    }
}

/// The monotonic clock. It is not injected, because it only decides how long to wait for a batch.
pub(super) fn now() -> Instant {
    Instant::now()
}
