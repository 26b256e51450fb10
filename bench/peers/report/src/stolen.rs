//! Time in which the host of a virtual machine lets its processors stand still although they have work: whatever is
//! measured meanwhile waits, and not for a disk or a server.

use std::time::{Duration, Instant};

/// From when something was due to when it was done.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// When it was due.
    pub from: Instant,
    /// When it was done.
    pub to: Instant,
}

/// What was stolen since the machine was started, by when it was looked at.
#[derive(Debug)]
pub struct Stolen(Vec<(Instant, Duration)>);

impl Stolen {
    /// So much later it may be told: it is in hundredths of a second, and of a processor when that one runs again.
    pub const LATE: Duration = Duration::from_millis(100);

    /// Begins with what was there at some time.
    #[must_use]
    pub fn at_first(when: Instant, stolen: Duration) -> Self {
        Self(vec![(when, stolen)])
    }

    /// What was there later.
    pub fn then(&mut self, when: Instant, stolen: Duration) {
        self.0.push((when, stolen));
    }

    /// How much it was altogether.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.between(0, self.0.len() - 1)
    }

    /// Whether nothing was stolen meanwhile.
    #[must_use]
    pub fn spared(&self, span: &Span) -> bool {
        let from = span.from.checked_sub(Self::LATE).unwrap_or(span.from);
        let to = span.to + Self::LATE;
        let before = self.0.partition_point(|(when, _)| *when <= from).saturating_sub(1);
        let behind = self.0.partition_point(|(when, _)| *when < to).min(self.0.len() - 1);
        self.between(before, behind).is_zero()
    }

    fn between(&self, first: usize, last: usize) -> Duration {
        self.0[last].1.saturating_sub(self.0[first].1)
    }
}
