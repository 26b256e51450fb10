//! What the disk takes by itself.

use std::fs::File;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::Path;
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

/// What `measured` comes to, with what the disk takes meanwhile, and right before and after.
pub(crate) fn with_disk_beside(
    folder: &Path,
    plan: &Plan,
    measured: impl FnOnce() -> Result<Outcome>,
) -> Result<Outcome> {
    let mut flat_out = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let (mut on_time, mut meanwhile) = (flat_out.clone(), flat_out.clone());
    let mut measure_alone = || {
        measure_syncs(folder, FLAT_OUT, &mut flat_out)?;
        measure_on_time(folder, ON_TIME, plan.per_second, &mut on_time)
    };
    measure_alone()?;
    let is_over = AtomicBool::new(false);
    let pause = Duration::from_millis(plan.sync_every_ms);
    let (outcome, syncs) = thread::scope(|scope| {
        let syncs =
            scope.spawn(|| measure_syncs_meanwhile(folder, pause, &is_over, &mut meanwhile));
        let outcome = measured();
        is_over.store(true, Ordering::Relaxed);
        (outcome, syncs.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    syncs?;
    let mut outcome = outcome?;
    measure_alone()?;
    if let Outcome::Latency { disk, .. } = &mut outcome {
        *disk = Disk {
            meanwhile_p99_us: meanwhile.value_at_quantile(0.99),
            flat_out_p99_us: flat_out.value_at_quantile(0.99),
            file_p99_us: on_time.value_at_quantile(0.99),
        };
    }
    Ok(outcome)
}

/// Writes events to the end of a file, each with an `fdatasync`, one after the other for that long, and adds
/// how many microseconds each `fdatasync` took.
fn measure_syncs(folder: &Path, time: Duration, took: &mut Histogram<u64>) -> io::Result<()> {
    let path = folder.join("fdatasync");
    let mut file = File::create(&path)?;
    let text = event::text(0);
    let began = Instant::now();
    while began.elapsed() < time {
        file.write_all(text.as_bytes())?;
        let before = Instant::now();
        file.sync_data()?;
        took.saturating_record(u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    std::fs::remove_file(path)
}

/// Writes an event to the end of a file and syncs it, with a `pause` between, until it `is_over`. Adds how many
/// microseconds each `fdatasync` took.
fn measure_syncs_meanwhile(
    folder: &Path,
    pause: Duration,
    is_over: &AtomicBool,
    took: &mut Histogram<u64>,
) -> io::Result<()> {
    let path = folder.join("meanwhile");
    let mut file = File::create(&path)?;
    let text = event::text(0);
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(pause);
        file.write_all(text.as_bytes())?;
        let before = Instant::now();
        file.sync_data()?;
        took.saturating_record(u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    std::fs::remove_file(path)
}

/// Writes events to the end of a file at a fixed rate for that long, and nothing else: all that is due, then one
/// `fdatasync`. Adds how many microseconds each took from when it was due.
fn measure_on_time(
    folder: &Path,
    time: Duration,
    per_second: u32,
    took: &mut Histogram<u64>,
) -> io::Result<()> {
    let path = folder.join("on-time");
    let mut file = File::create(&path)?;
    let text = event::text(0);
    let every = Duration::from_secs(1) / per_second;
    let began = Instant::now();
    let mut due = began;
    while due < began + time {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let (first, now) = (due, Instant::now());
        while due <= now {
            file.write_all(text.as_bytes())?;
            due += every;
        }
        file.sync_data()?;
        let synced = Instant::now();
        let mut written = first;
        while written < due {
            let late = synced.saturating_duration_since(written).as_micros();
            took.saturating_record(u64::try_from(late).unwrap_or(u64::MAX));
            written += every;
        }
    }
    std::fs::remove_file(path)
}
