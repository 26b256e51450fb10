//! What the disk takes by itself.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use prombus_peers_report::{Plan, Span};

use crate::event;
use crate::meanwhile::meanwhile;
use crate::session::Result;

/// How long syncs are measured flat out, before and after.
const FLAT_OUT: Duration = Duration::from_millis(500);

/// Waits until all that was written to the filesystem of `folder` is on the disk: what one system leaves behind
/// must not be written while the next is measured.
pub(crate) fn settle(folder: &Path) -> Result<()> {
    let status = Command::new("sync").arg("--file-system").arg(folder).status();
    if !status.map_err(|error| format!("sync: {error}"))?.success() {
        return Err("sync failed".into());
    }
    Ok(())
}

/// What the disk takes by itself.
pub(crate) struct Beside {
    /// At regular times while something else was measured.
    pub(crate) meanwhile: Syncs,
    /// One after the other, right before and after.
    pub(crate) flat_out: Vec<Span>,
    /// At the rate and for as long as what was measured, half of it right before, half after.
    pub(crate) plain_file: Syncs,
}

/// What `measured` comes to, and what the disk takes meanwhile, and right before and after.
pub(crate) fn with_disk_beside<T>(
    folder: &Path,
    plan: &Plan,
    measured: impl FnOnce() -> T,
) -> Result<(T, Beside)> {
    let (mut flat_out, mut plain_file) = (Vec::new(), Syncs::default());
    let mut measure_alone = || {
        measure_flat_out(folder, &mut flat_out)?;
        let began = Instant::now();
        let time = Duration::from_secs(plan.steady_seconds) / 2;
        let every = Duration::from_secs(1) / plan.per_second;
        measure_at_times(folder, every, || began.elapsed() < time, &mut plain_file)
    };
    measure_alone()?;
    let every = Duration::from_millis(plan.sync_every_ms);
    let mut syncs = Syncs::default();
    let (outcome, beside) =
        meanwhile(measured, |goes_on| measure_at_times(folder, every, goes_on, &mut syncs));
    beside?;
    settle(folder)?;
    measure_alone()?;
    Ok((outcome, Beside { meanwhile: syncs, flat_out, plain_file }))
}

/// Writes events to the end of a file, each with an `fdatasync`, one after the other, and adds how long each
/// `fdatasync` took.
fn measure_flat_out(folder: &Path, calls: &mut Vec<Span>) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    let began = Instant::now();
    while began.elapsed() < FLAT_OUT {
        write_event(&mut file)?;
        calls.push(sync(&file)?);
    }
    Ok(())
}

/// Syncs that were asked for at regular times.
#[derive(Default)]
pub(crate) struct Syncs {
    /// From when each event was due, which is before the call where the one before it took long.
    pub(crate) from_due: Vec<Span>,
    /// The calls alone.
    pub(crate) calls: Vec<Span>,
}

/// Writes events to the end of a file at regular times while that `goes_on`, and nothing else: all that is due,
/// then one `fdatasync`. That a timer was late does not count.
fn measure_at_times(
    folder: &Path,
    every: Duration,
    goes_on: impl Fn() -> bool,
    syncs: &mut Syncs,
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
        let call = sync(&file)?;
        syncs.calls.push(call);
        let mut written = first;
        while written < due {
            let from = if early.is_zero() { written } else { begun };
            syncs.from_due.push(Span { from, ..call });
            written += every;
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
