//! What the disk takes by itself.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
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
