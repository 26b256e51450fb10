//! What a steady rate comes to, beside the disk, and where the host left the machine alone.

use std::path::Path;

use prombus_peers_report::{Disk, Outcome, Plan, Span, Spared, Stolen};

use crate::disk::{Beside, with_disk_beside};
use crate::meanwhile::meanwhile;
use crate::session::Result;
use crate::stolen;
use crate::times::{p99, times};
use crate::work::Seen;

pub(crate) fn latency(
    folder: &Path,
    plan: &Plan,
    measured: impl FnOnce() -> Result<Seen>,
) -> Result<Outcome> {
    let measured = || meanwhile(measured, stolen::watch);
    let ((seen, stolen), beside) = with_disk_beside(folder, plan, measured)?;
    let (Seen { events, undelivered, delivered, .. }, stolen) = (seen?, stolen?);
    let all = times(&delivered)?;
    let Beside { meanwhile, flat_out, plain_file } = beside;
    Ok(Outcome::Latency {
        events,
        undelivered,
        p50_us: all.value_at_quantile(0.5),
        p99_us: all.value_at_quantile(0.99),
        p999_us: all.value_at_quantile(0.999),
        max_us: all.max(),
        disk: Disk {
            meanwhile_p99_us: p99(&meanwhile.from_due)?,
            calls_p99_us: p99(&meanwhile.calls)?,
            flat_out_p99_us: p99(&flat_out)?,
            file_p99_us: p99(&plain_file.from_due)?,
            file_calls_p99_us: p99(&plain_file.calls)?,
        },
        stolen_ms: u64::try_from(stolen.total().as_millis())?,
        spared: Spared {
            events_percent: u64::try_from(
                100 * spared(&delivered, &stolen).count() / delivered.len().max(1),
            )?,
            p99_us: p99(spared(&delivered, &stolen))?,
            meanwhile_p99_us: p99(spared(&meanwhile.from_due, &stolen))?,
            calls_p99_us: p99(spared(&meanwhile.calls, &stolen))?,
        },
    })
}

fn spared<'a>(spans: &'a [Span], stolen: &'a Stolen) -> impl Iterator<Item = &'a Span> {
    spans.iter().filter(|span| stolen.spared(span))
}
