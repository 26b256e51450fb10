//! Samples the steal counter of the kernel.

use std::time::{Duration, Instant};
use std::{fs, io, thread};

use prombus_peers_report::StealSamples;

const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// The unit of `/proc/stat` (`USER_HZ`), which is the same on all common architectures.
const UNITS_PER_SECOND: u32 = 100;

/// Samples while `is_running`, and afterwards for as long as steal may be reported late.
pub(crate) fn watch(is_running: &dyn Fn() -> bool) -> io::Result<StealSamples> {
    let mut samples = StealSamples::new(Instant::now(), stolen_since_boot()?);
    let mut ended: Option<Instant> = None;
    while ended.is_none_or(|ended| ended.elapsed() < 2 * StealSamples::REPORTING_DELAY) {
        thread::sleep(SAMPLE_INTERVAL);
        samples.push(Instant::now(), stolen_since_boot()?);
        if ended.is_none() && !is_running() {
            ended = Some(Instant::now());
        }
    }
    Ok(samples)
}

/// Returns the steal of all processors together. Zero on a physical machine.
fn stolen_since_boot() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    // "cpu", then user, nice, system, idle, iowait, irq, softirq, steal.
    let units = stat.split_whitespace().nth(8).and_then(|units| units.parse::<u32>().ok());
    Ok(Duration::from_secs(1) * units.unwrap_or(0) / UNITS_PER_SECOND)
}
