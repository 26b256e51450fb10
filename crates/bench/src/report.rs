//! What a run came to, as JSON and as rows for a person.

use std::time::Duration;

use serde::Serialize;

use crate::measure::latencies::Summary;
use crate::measure::tally::Total;

/// What publishing came to.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PublishReport {
    /// How many events were answered OK.
    pub published: u64,
    /// How fast: up to the last answer, each event up to its own. Each counts as `--size` bytes.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What consuming came to.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SubscribeReport {
    /// How many events were delivered and acknowledged, each alone.
    pub n: u64,
    /// How fast: up to the last acknowledgement's answer, each event up to its delivery, with as many
    /// bytes as it came with. Of a backlog, latencies count from the subscription.
    #[serde(flatten)]
    pub figures: Figures,
}

/// How fast a run was.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// From the first event to the end, in milliseconds.
    pub ms: f64,
    /// Events a second.
    pub mps: f64,
    /// How many bytes the events had.
    pub bytes: u64,
    /// From sending an event, or when it was meant to be sent, in milliseconds.
    #[serde(flatten)]
    pub latency: Summary,
    /// How many events were sent over a millisecond later than they were meant to; flat out none.
    pub late: u64,
}

impl PublishReport {
    pub(crate) fn of(total: &Total) -> Self {
        Self { published: total.events, figures: Figures::of(total, total.took, total.late) }
    }
}

impl SubscribeReport {
    /// Of what was delivered, when every acknowledgement was answered after `took`.
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

/// Milliseconds, to the microsecond.
pub(crate) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// So many a second, to the tenth.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    // A run is never so short that it took no time; a clock may be so coarse.
    let seconds = time.as_secs_f64().max(1e-9);
    (count as f64 / seconds * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_mean_something() {
        assert_eq!(ms(Duration::from_nanos(1_234_567)), 1.235);
        assert_eq!(per_second(1000, Duration::from_millis(300)), 3333.3);
    }
}
