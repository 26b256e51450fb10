//! How long many things took.

use hdrhistogram::Histogram;
use prombus_peers_report::Span;

use crate::session::Result;

/// How many microseconds each took.
pub(crate) fn times<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Result<Histogram<u64>> {
    let mut times = Histogram::new_with_bounds(1, 600_000_000, 3)?;
    for Span { from, to } in spans {
        let time = to.saturating_duration_since(*from);
        times.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }
    Ok(times)
}

/// All but one in a hundred took less, in microseconds.
pub(crate) fn p99<'a>(spans: impl IntoIterator<Item = &'a Span>) -> Result<u64> {
    Ok(times(spans)?.value_at_quantile(0.99))
}
