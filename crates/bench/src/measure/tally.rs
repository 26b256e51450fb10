//! The running totals of a bench.

use std::time::Duration;

use parking_lot::Mutex;

use crate::measure::latencies::{Latencies, Summary};

/// The running totals of a bench, counters by all connections.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counters>);

#[derive(Debug, Default)]
struct Counters {
    events: u64,
    bytes: u64,
    late: u64,
    all: Latencies,
    /// Since the last call of [`Tally::progress`].
    recent: Latencies,
    /// When the last event was counters, since the start of the run.
    last: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub events: u64,
    /// The latencies since the last call of [`Tally::progress`].
    pub recent: Summary,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) late: u64,
    pub(crate) latencies: Summary,
    /// From the start of the run to the last event.
    pub(crate) took: Duration,
}

impl Tally {
    /// Returns the number of events so far and the most recent latencies.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut counters = self.0.lock();
        let progress = Progress { events: counters.events, recent: counters.recent.summary() };
        counters.recent.clear();
        progress
    }

    /// Counts events that took these times, with `bytes` in total, at `now`.
    pub(crate) fn add(&self, now: Duration, bytes: u64, took: &[(Duration, u64)]) {
        let mut counters = self.0.lock();
        for (time, events) in took {
            counters.events += events;
            counters.all.record(*time, *events);
            counters.recent.record(*time, *events);
        }
        counters.bytes += bytes;
        counters.last = counters.last.max(now);
    }

    /// Counts events that were sent late.
    pub(crate) fn add_late(&self, events: u64) {
        self.0.lock().late += events;
    }

    pub(crate) fn total(&self) -> Total {
        let counters = self.0.lock();
        let Counters { events, bytes, late, last, .. } = *counters;
        Total { events, bytes, late, took: last, latencies: counters.all.summary() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_recent_latencies_and_the_total_has_all() {
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
