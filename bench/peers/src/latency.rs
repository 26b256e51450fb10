//! The outcome of the steady workload: delivery latencies, those of the disk, and both without steal.

use std::path::Path;

use prombus_peers_report::{DiskLatency, Outcome, Plan, Span, StealFree, StealSamples};

use crate::client::Result;
use crate::concurrent::run_with_background;
use crate::disk::{DiskBaseline, measure_with_disk_baseline};
use crate::histogram::{histogram, p99};
use crate::steal;
use crate::workload::Observation;

pub(crate) fn measure_latency(
    folder: &Path,
    plan: &Plan,
    measured: impl FnOnce() -> Result<Observation>,
) -> Result<Outcome> {
    let measured = || run_with_background(measured, steal::watch);
    let ((observation, samples), baseline) = measure_with_disk_baseline(folder, plan, measured)?;
    let (Observation { events, undelivered, delivered, .. }, samples) = (observation?, samples?);
    let all = histogram(&delivered)?;
    let DiskBaseline { during, back_to_back, plain_file } = baseline;
    Ok(Outcome::Latency {
        events,
        undelivered,
        p50_us: all.value_at_quantile(0.5),
        p99_us: all.value_at_quantile(0.99),
        p999_us: all.value_at_quantile(0.999),
        max_us: all.max(),
        disk: DiskLatency {
            scheduled_p99_us: p99(&during.from_schedule)?,
            calls_p99_us: p99(&during.calls)?,
            back_to_back_p99_us: p99(&back_to_back)?,
            plain_file_p99_us: p99(&plain_file.from_schedule)?,
            plain_file_calls_p99_us: p99(&plain_file.calls)?,
        },
        stolen_ms: u64::try_from(samples.total().as_millis())?,
        steal_free: StealFree {
            events_percent: u64::try_from(
                100 * steal_free(&delivered, &samples).count() / delivered.len().max(1),
            )?,
            p99_us: p99(steal_free(&delivered, &samples))?,
            scheduled_p99_us: p99(steal_free(&during.from_schedule, &samples))?,
            calls_p99_us: p99(steal_free(&during.calls, &samples))?,
        },
    })
}

fn steal_free<'a>(spans: &'a [Span], samples: &'a StealSamples) -> impl Iterator<Item = &'a Span> {
    spans.iter().filter(|span| samples.is_free_of_steal(span))
}
