//! The series of a consumer group.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use prometheus::{Histogram, IntCounter, IntGauge};

use crate::groups::Delivery;

#[derive(Debug)]
pub(crate) struct GroupSeries {
    pub(super) delivered: IntCounter,
    pub(super) acked: IntCounter,
    pub(super) nacked: IntCounter,
    pub(super) dead_lettered: IntCounter,
    pub(super) in_flight: IntGauge,
    /// Shared by all groups, as is `deliver_to_ack`.
    pub(super) publish_to_deliver: Histogram,
    pub(super) deliver_to_ack: Histogram,
}

/// The series of a group that may not come into being: they are registered when they are used first.
pub(crate) type LazySeries =
    LazyLock<Arc<GroupSeries>, Box<dyn FnOnce() -> Arc<GroupSeries> + Send>>;

impl GroupSeries {
    /// Records deliveries sent at `now`, which may belong to several groups.
    pub(crate) fn delivered(deliveries: &[Delivery], now: Instant) {
        for run in deliveries.chunk_by(|one, next| Arc::ptr_eq(&one.series, &next.series)) {
            let series = &run[0].series;
            series.delivered.inc_by(run.len() as u64);
            // The latency of a redelivery depends on consumers, not on the bus.
            let first = run.iter().filter(|delivery| delivery.attempt == 1);
            let mut publish_times =
                first.filter_map(|delivery| delivery.event.published_at()).peekable();
            if publish_times.peek().is_some() {
                let times = series.publish_to_deliver.local();
                for at in publish_times {
                    times.observe(now.saturating_duration_since(at).as_secs_f64());
                }
                times.flush();
            }
        }
    }

    /// Records stored acknowledgements by the time since their delivery.
    pub(crate) fn acked(&self, after: impl Iterator<Item = Duration>) {
        let times = self.deliver_to_ack.local();
        let mut count = 0;
        for time in after {
            times.observe(time.as_secs_f64());
            count += 1;
        }
        times.flush();
        self.acked.inc_by(count);
    }

    pub(crate) fn nacked(&self, events: usize) {
        self.nacked.inc_by(events as u64);
    }

    pub(crate) fn dead_lettered(&self, letters: usize) {
        self.dead_lettered.inc_by(letters as u64);
    }
}

/// A group's share of an in-flight gauge, which several groups may use. Subtracted on drop.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// `None` until something was in flight.
    gauge: Option<IntGauge>,
    current: i64,
}

impl InFlight {
    pub(crate) fn set(&mut self, count: usize, series: &LazySeries) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if count != self.current {
            let gauge = self.gauge.get_or_insert_with(|| series.in_flight.clone());
            gauge.add(count - self.current);
            self.current = count;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(gauge) = &self.gauge {
            gauge.sub(self.current);
        }
    }
}
