//! Decides when a task that failed is tried again.

use std::time::{Duration, Instant};

/// How long to wait after the first failure. Doubles with each one that follows, because a task may
/// read the whole store.
const FIRST_WAIT: Duration = Duration::from_secs(5);
const MAX_DOUBLINGS: u32 = 7;

/// When a task may be tried again.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    not_before: Option<Instant>,
}

impl Backoff {
    pub(super) const NONE: Self = Self { failures: 0, not_before: None };

    pub(super) fn is_waiting(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    /// Waits, longer than the last time.
    pub(super) fn wait(&mut self) {
        self.not_before = Some(Instant::now() + self.next_wait());
    }

    fn next_wait(&mut self) -> Duration {
        let doublings = self.failures.min(MAX_DOUBLINGS);
        self.failures = self.failures.saturating_add(1);
        FIRST_WAIT * 2_u32.pow(doublings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_and_longer_up_to_a_limit() {
        let mut backoff = Backoff::NONE;
        let waits: Vec<_> = (0..10).map(|_| backoff.next_wait()).collect();
        assert!(waits.is_sorted() && waits[0] < waits[6] && waits[8] == waits[9], "{waits:?}");
    }
}
