//! What the disk takes by itself.

use std::fs::File;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use prombus_peers_report::{Disk, Outcome, Plan};

use crate::event;
use crate::session::Result;

/// How long syncs are measured flat out, before and after.
const FLAT_OUT: Duration = Duration::from_millis(500);
/// How long a plain file is, which has to see as many slow syncs as a server does.
const ON_TIME: Duration = Duration::from_millis(1500);

/// Waits until all that was written to the filesystem of `folder` is on the disk: what one system leaves behind
/// must not be written while the next is measured.
pub(crate) fn settle(folder: &Path) -> Result<()> {
    let status = Command::new("sync").arg("--file-system").arg(folder).status();
    if !status.map_err(|error| format!("sync: {error}"))?.success() {
        return Err("sync failed".into());
    }
    Ok(())
}

/// What `measured` comes to, with what the disk takes meanwhile, and right before and after.
pub(crate) fn with_disk_beside(
    folder: &Path,
    plan: &Plan,
    measured: impl FnOnce() -> Result<Outcome>,
) -> Result<Outcome> {
    let mut flat_out = Histogram::new_with_bounds(1, 60_000_000, 3)?;
    let mut plain_file = Syncs { calls: flat_out.clone(), from_due: flat_out.clone() };
    let mut meanwhile = plain_file.clone();
    let mut measure_alone = || {
        measure_flat_out(folder, &mut flat_out)?;
        let began = Instant::now();
        let every = Duration::from_secs(1) / plan.per_second;
        measure_at_times(folder, every, || began.elapsed() < ON_TIME, &mut plain_file)
    };
    measure_alone()?;
    let is_over = AtomicBool::new(false);
    let every = Duration::from_millis(plan.sync_every_ms);
    let (outcome, syncs) = thread::scope(|scope| {
        let (is_over, meanwhile) = (&is_over, &mut meanwhile);
        let goes_on = || !is_over.load(Ordering::Relaxed);
        let syncs = scope.spawn(move || measure_at_times(folder, every, goes_on, meanwhile));
        let outcome = measured();
        is_over.store(true, Ordering::Relaxed);
        (outcome, syncs.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    syncs?;
    let mut outcome = outcome?;
    settle(folder)?;
    measure_alone()?;
    if let Outcome::Latency { disk, .. } = &mut outcome {
        *disk = Disk {
            meanwhile_p99_us: meanwhile.from_due.value_at_quantile(0.99),
            calls_p99_us: meanwhile.calls.value_at_quantile(0.99),
            flat_out_p99_us: flat_out.value_at_quantile(0.99),
            file_p99_us: plain_file.from_due.value_at_quantile(0.99),
        };
    }
    Ok(outcome)
}

/// Writes events to the end of a file, each with an `fdatasync`, one after the other, and adds how many
/// microseconds each `fdatasync` took.
fn measure_flat_out(folder: &Path, took: &mut Histogram<u64>) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    let began = Instant::now();
    while began.elapsed() < FLAT_OUT {
        write_event(&mut file)?;
        let before = Instant::now();
        file.sync_data()?;
        record(took, before.elapsed());
    }
    Ok(())
}

/// How many microseconds syncs took that were asked for at regular times.
#[derive(Clone)]
struct Syncs {
    /// From when each was due, which is before the call where the one before it took long.
    from_due: Histogram<u64>,
    /// The calls alone.
    calls: Histogram<u64>,
}

/// Writes events to the end of a file at regular times while that `goes_on`, and nothing else: all that is due,
/// then one `fdatasync`. That a timer was late does not count.
fn measure_at_times(
    folder: &Path,
    every: Duration,
    goes_on: impl Fn() -> bool,
    took: &mut Syncs,
) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut due = Instant::now();
    while goes_on() {
        let early = due.saturating_duration_since(Instant::now());
        thread::sleep(early);
        let (first, begun) = (due, Instant::now());
        while due <= begun {
            write_event(&mut file)?;
            due += every;
        }
        let before = Instant::now();
        file.sync_data()?;
        let synced = Instant::now();
        record(&mut took.calls, synced - before);
        let mut written = first;
        while written < due {
            let from = if early.is_zero() { written } else { begun };
            record(&mut took.from_due, synced.saturating_duration_since(from));
            written += every;
        }
    }
    Ok(())
}

fn write_event(file: &mut File) -> io::Result<()> {
    file.write_all(event::text(0).as_bytes())
}

fn record(took: &mut Histogram<u64>, time: Duration) {
    took.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}
