//! The results of a run.

use std::time::Duration;

use serde::Serialize;

use crate::measure::latencies::Summary;
use crate::measure::tally::Total;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct PublishReport {
    /// Events that were answered OK.
    pub published: u64,
    /// Until the last answer. Latencies run until an event's answer; each event counts as `--size`
    /// bytes.
    #[serde(flatten)]
    pub figures: Figures,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct SubscribeReport {
    /// Events that were delivered and acknowledged, each on its own.
    pub n: u64,
    /// Until the last acknowledgement is answered. Latencies run until an event's delivery; those
    /// of a backlog start with the subscription.
    #[serde(flatten)]
    pub figures: Figures,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// From the first event to the last answer, in milliseconds.
    pub ms: f64,
    /// Events per second.
    pub mps: f64,
    pub bytes: u64,
    /// In milliseconds, from when an event was sent, or scheduled to be sent.
    #[serde(flatten)]
    pub latency: Summary,
    /// Events sent more than a millisecond after their scheduled time; 0 without a rate.
    pub late: u64,
}

impl PublishReport {
    pub(crate) fn of(total: &Total) -> Self {
        Self { published: total.events, figures: Figures::of(total, total.took, total.late) }
    }
}

impl SubscribeReport {
    /// Returns the report of a run in which every acknowledgement was answered after `took`.
    pub(crate) fn of(delivered: &Total, took: Duration, late: u64) -> Self {
        Self { n: delivered.events, figures: Figures::of(delivered, took, late) }
    }
}

impl Figures {
    fn of(total: &Total, took: Duration, late: u64) -> Self {
        let Total { events, bytes, latencies, .. } = *total;
        let (ms, mps) = (ms(took), per_second(events, took));
        Self { ms, mps, bytes, latency: latencies, late }
    }
}

/// Returns milliseconds, rounded to the microsecond.
pub(crate) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Returns a rate per second, rounded to a tenth.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    // A coarse clock may measure no time at all.
    let seconds = time.as_secs_f64().max(1e-9);
    (count as f64 / seconds * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_significant_digits() {
        assert_eq!(ms(Duration::from_nanos(1_234_567)), 1.235);
        assert_eq!(per_second(1000, Duration::from_millis(300)), 3333.3);
    }
}
