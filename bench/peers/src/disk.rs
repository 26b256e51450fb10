//! How long the disk takes, without a server.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use prombus_peers_report::{Plan, Span};

use crate::client::Result;
use crate::concurrent::run_with_background;
use crate::event;

/// How long syncs are measured back to back, before and after a measurement.
const BACK_TO_BACK_TIME: Duration = Duration::from_millis(500);

/// Syncs the filesystem of `folder`, so that dirty pages of one system are not written back while the next is
/// measured.
pub(crate) fn sync_filesystem(folder: &Path) -> Result<()> {
    let status = Command::new("sync").arg("--file-system").arg(folder).status();
    if !status.map_err(|error| format!("sync: {error}"))?.success() {
        return Err("sync failed".into());
    }
    Ok(())
}

/// Sync times around and during a measurement.
pub(crate) struct DiskBaseline {
    /// At regular times during the measurement.
    pub(crate) during: SyncTimes,
    /// One after the other, right before and after the measurement.
    pub(crate) back_to_back: Vec<Span>,
    /// At the rate and for the duration of the measurement, half of it right before, half right after.
    pub(crate) plain_file: SyncTimes,
}

/// Runs `measured`, and measures the disk before, during and after.
pub(crate) fn measure_with_disk_baseline<T>(
    folder: &Path,
    plan: &Plan,
    measured: impl FnOnce() -> T,
) -> Result<(T, DiskBaseline)> {
    let (mut back_to_back, mut plain_file) = (Vec::new(), SyncTimes::default());
    let mut measure_disk_alone = || {
        sync_back_to_back(folder, &mut back_to_back)?;
        let started = Instant::now();
        let time = Duration::from_secs(plan.steady_seconds) / 2;
        let interval = Duration::from_secs(1) / plan.per_second;
        sync_on_schedule(folder, interval, || started.elapsed() < time, &mut plain_file)
    };
    measure_disk_alone()?;
    let interval = Duration::from_millis(plan.sync_every_ms);
    let mut during = SyncTimes::default();
    let (outcome, synced) = run_with_background(measured, |is_running| {
        sync_on_schedule(folder, interval, is_running, &mut during)
    });
    synced?;
    sync_filesystem(folder)?;
    measure_disk_alone()?;
    Ok((outcome, DiskBaseline { during, back_to_back, plain_file }))
}

/// Appends events to a file and syncs after each of them. Appends the time of each `fdatasync` to `calls`.
fn sync_back_to_back(folder: &Path, calls: &mut Vec<Span>) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    let started = Instant::now();
    while started.elapsed() < BACK_TO_BACK_TIME {
        write_event(&mut file)?;
        calls.push(sync(&file)?);
    }
    Ok(())
}

/// Syncs at regular times.
#[derive(Default)]
pub(crate) struct SyncTimes {
    /// From the scheduled time of each event, which is before the call if the previous call took long.
    pub(crate) from_schedule: Vec<Span>,
    /// The calls alone.
    pub(crate) calls: Vec<Span>,
}

/// Appends events to a file at regular times while `is_running`: writes all events that are due, then calls
/// `fdatasync` once. A late timer does not count.
fn sync_on_schedule(
    folder: &Path,
    interval: Duration,
    is_running: impl Fn() -> bool,
    times: &mut SyncTimes,
) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    let mut due = Instant::now();
    while is_running() {
        let early = due.saturating_duration_since(Instant::now());
        thread::sleep(early);
        let (first, started) = (due, Instant::now());
        while due <= started {
            write_event(&mut file)?;
            due += interval;
        }
        let call = sync(&file)?;
        times.calls.push(call);
        let mut written = first;
        while written < due {
            let from = if early.is_zero() { written } else { started };
            times.from_schedule.push(Span { from, ..call });
            written += interval;
        }
    }
    Ok(())
}

fn write_event(file: &mut File) -> io::Result<()> {
    file.write_all(event::text(0).as_bytes())
}

fn sync(file: &File) -> io::Result<Span> {
    let from = Instant::now();
    file.sync_data()?;
    Ok(Span { from, to: Instant::now() })
}
