//! Percentiles of durations.

use hdrhistogram::Histogram;
use prombus_peers_report::Span;

use crate::client::Result;

/// Returns the durations in microseconds.
pub(crate) fn histogram<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Result<Histogram<u64>> {
    let mut histogram = Histogram::new_with_bounds(1, 600_000_000, 3)?;
    for Span { from, to } in spans {
        let time = to.saturating_duration_since(*from);
        histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
    Ok(histogram)
}

/// Returns the p99 in microseconds.
pub(crate) fn p99<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Result<u64> {
    Ok(histogram(spans)?.value_at_quantile(0.99))
}
