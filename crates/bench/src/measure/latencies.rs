//! A histogram of latencies.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer latencies count as this.
const LONGEST: Duration = Duration::from_secs(3600);
/// Significant digits.
const DIGITS: u8 = 3;

/// Latencies with a precision of three digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p999: f64,
    pub max: f64,
    pub avg: f64,
}

impl Latencies {
    #[must_use]
    pub fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        Self(Histogram::new_with_bounds(1, longest, DIGITS).expect("valid bounds"))
    }

    /// Records `count` events that took `took`.
    pub fn record(&mut self, took: Duration, count: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record_n(nanos, count);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn clear(&mut self) {
        self.0.reset();
    }

    #[must_use]
    pub fn summary(&self) -> Summary {
        let quantile = |quantile: f64| ms(self.0.value_at_quantile(quantile) as f64);
        Summary {
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: ms(self.0.max() as f64),
            avg: ms(self.0.mean()),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Converts nanoseconds to milliseconds, rounded to the microsecond.
fn ms(nanos: f64) -> f64 {
    (nanos / 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_milliseconds_with_three_digits() {
        let mut latencies = Latencies::new();
        for n in 1..=1000 {
            latencies.record(Duration::from_micros(n * 10), 1);
        }
        let summary = latencies.summary();
        for (found, expected) in [
            (summary.p50, 5.0),
            (summary.p90, 9.0),
            (summary.p99, 9.9),
            (summary.p999, 9.99),
            (summary.max, 10.0),
            (summary.avg, 5.005),
        ] {
            assert!((found / expected - 1.0).abs() < 0.002, "{found} is not {expected}");
        }
        let json = serde_json::to_value(summary).unwrap();
        let names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["avg", "max", "p50", "p90", "p99", "p99.9"]);
    }

    #[test]
    fn caps_latencies_at_the_longest() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(1_000_000), 2);
        assert_eq!(latencies.count(), 2);
        assert!(latencies.summary().max >= 3_600_000.0);
        latencies.clear();
        assert_eq!((latencies.count(), latencies.summary().max), (0, 0.0));
    }
}
