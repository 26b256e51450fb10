//! What the disk takes by itself.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::event;

/// Writes events to the end of a file, each with an `fdatasync`, one after the other for that long, and adds
/// how many microseconds each `fdatasync` took.
pub(crate) fn measure_syncs(
    folder: &Path,
    time: Duration,
    took: &mut Histogram<u64>,
) -> io::Result<()> {
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

/// Writes an event to the end of a file and syncs it `every` so often, until it `is_over`. Adds how many
/// microseconds each `fdatasync` took.
pub(crate) fn measure_syncs_meanwhile(
    folder: &Path,
    every: Duration,
    is_over: &AtomicBool,
    took: &mut Histogram<u64>,
) -> io::Result<()> {
    let path = folder.join("meanwhile");
    let mut file = File::create(&path)?;
    let text = event::text(0);
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(every);
        file.write_all(text.as_bytes())?;
        let before = Instant::now();
        file.sync_data()?;
        took.saturating_record(u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    std::fs::remove_file(path)
}

/// Writes events to the end of a file at a fixed rate for that long, and nothing else: all that is due, then one
/// `fdatasync`. Adds how many microseconds each took from when it was due.
pub(crate) fn measure_on_time(
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
