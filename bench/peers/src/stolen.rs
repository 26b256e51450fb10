//! What the host takes from the processors, as the kernel tells.

use std::time::{Duration, Instant};
use std::{fs, io, thread};

use prombus_peers_report::Stolen;

const EVERY: Duration = Duration::from_millis(20);
/// The unit of `/proc/stat`, which is the same for all that is in use.
const UNITS_PER_SECOND: u32 = 100;

/// Looks while that `goes_on`, and for as long after as it may be told late.
pub(crate) fn watch(goes_on: &dyn Fn() -> bool) -> io::Result<Stolen> {
    let mut seen = Stolen::at_first(Instant::now(), stolen()?);
    let mut over: Option<Instant> = None;
    while over.is_none_or(|over| over.elapsed() < 2 * Stolen::LATE) {
        thread::sleep(EVERY);
        seen.then(Instant::now(), stolen()?);
        if over.is_none() && !goes_on() {
            over = Some(Instant::now());
        }
    }
    Ok(seen)
}

/// Of all processors together, since the machine was started. Nothing where it is no virtual one.
fn stolen() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    // "cpu", then user, nice, system, idle, iowait, irq, softirq, steal.
    let units = stat.split_whitespace().nth(8).and_then(|units| units.parse::<u32>().ok());
    Ok(Duration::from_secs(1) * units.unwrap_or(0) / UNITS_PER_SECOND)
}
