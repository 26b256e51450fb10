//! Steal: the time in which a hypervisor runs something else on the processors of a virtual machine. Everything that is
//! measured stands still meanwhile, whatever the disk and the server do.

use std::time::{Duration, Instant};

/// The time from when something was due to when it was done.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: Instant,
    pub to: Instant,
}

/// Samples of the kernel's steal counter, in the order in which they were taken. Never empty.
#[derive(Debug)]
pub struct StealSamples(Vec<(Instant, Duration)>);

impl StealSamples {
    /// How late steal may show in the counter, which counts hundredths of a second and is updated by a processor once it
    /// runs again.
    pub const REPORTING_DELAY: Duration = Duration::from_millis(100);

    /// Starts with the steal since boot, read at `when`.
    #[must_use]
    pub fn new(when: Instant, stolen: Duration) -> Self {
        Self(vec![(when, stolen)])
    }

    pub fn push(&mut self, when: Instant, stolen: Duration) {
        self.0.push((when, stolen));
    }

    /// Returns the steal between the first and the last sample.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.between(0, self.0.len() - 1)
    }

    /// Returns `true` if nothing was stolen during `span`, or shortly before or after it.
    #[must_use]
    pub fn is_free_of_steal(&self, span: &Span) -> bool {
        let from = span.from.checked_sub(Self::REPORTING_DELAY).unwrap_or(span.from);
        let to = span.to + Self::REPORTING_DELAY;
        let before = self.0.partition_point(|(when, _)| *when <= from).saturating_sub(1);
        let after = self.0.partition_point(|(when, _)| *when < to).min(self.0.len() - 1);
        self.between(before, after).is_zero()
    }

    fn between(&self, first: usize, last: usize) -> Duration {
        self.0[last].1.saturating_sub(self.0[first].1)
    }
}
