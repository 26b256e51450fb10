//! What was done so far, counted by all connections, looked at by whoever watches.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::measure::latencies::{Latencies, Summary};

/// What was done so far.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    events: u64,
    bytes: u64,
    late: u64,
    all: Latencies,
    /// Those since the last progress.
    recent: Latencies,
    /// When the last one was done.
    last: Duration,
}

/// What whoever watches sees.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// How many events are done.
    pub events: u64,
    /// How long those took that were done since the last progress.
    pub recent: Summary,
}

/// What it came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) late: u64,
    pub(crate) latencies: Summary,
    /// When the last event was done, from the beginning of the run.
    pub(crate) took: Duration,
}

impl Tally {
    /// What was done since the last progress, and before.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut counted = self.counted();
        let progress = Progress { events: counted.events, recent: counted.recent.summary() };
        counted.recent.clear();
        progress
    }

    /// So many events with so many bytes are done by `now`, in these times.
    pub(crate) fn add(&self, now: Duration, bytes: u64, took: &[(Duration, u64)]) {
        let mut counted = self.counted();
        for (time, events) in took {
            counted.events += events;
            counted.all.record(*time, *events);
            counted.recent.record(*time, *events);
        }
        counted.bytes += bytes;
        counted.last = counted.last.max(now);
    }

    /// So many were sent later than they were meant to.
    pub(crate) fn add_late(&self, events: u64) {
        self.counted().late += events;
    }

    pub(crate) fn total(&self) -> Total {
        let counted = self.counted();
        let Counted { events, bytes, late, last, .. } = *counted;
        Total { events, bytes, late, took: last, latencies: counted.all.summary() }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_sees_what_is_new_and_the_total_everything() {
        let ms = Duration::from_millis;
        let tally = Tally::default();
        tally.add(ms(10), 20, &[(ms(4), 2)]);
        assert!(tally.progress().recent.max >= 4.0);
        tally.add(ms(11), 10, &[(ms(1), 1)]);
        let progress = tally.progress();
        assert!((progress.events, progress.recent.max < 1.1) == (3, true), "{progress:?}");
        tally.add_late(1);
        let total = tally.total();
        assert_eq!((total.events, total.bytes, total.late, total.took), (3, 30, 1, ms(11)));
        assert!(total.latencies.max >= 4.0);
    }
}
