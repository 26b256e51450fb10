//! What the operating system says about the process, under the names that Prometheus clients share.
//!
//! The collector of the `prometheus` crate lists every open descriptor at each scrape and brings another version of
//! `rustix`; this reads three small files.

use std::fs;
use std::io;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::scrape::valid;

/// What `/proc/self/stat` says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    /// Ticks from the start of the machine to that of the process.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// Returns the families of the process. What cannot be read has none.
pub(super) fn families() -> Vec<MetricFamily> {
    let mut families = Vec::new();
    if let Some(stat) = read("/proc/self/stat").as_deref().and_then(Stat::parse) {
        let ticks = clock_ticks_per_second();
        families.extend(counter(
            "process_cpu_seconds_total",
            "User and system CPU time of the process.",
            ratio(stat.cpu_ticks, ticks),
        ));
        let resident = stat.resident_pages * page_size() as u64;
        families.extend(
            [
                ("process_resident_memory_bytes", "Resident memory of the process.", resident),
                (
                    "process_virtual_memory_bytes",
                    "Virtual memory of the process.",
                    stat.virtual_bytes,
                ),
                ("process_threads", "Threads of the process.", stat.threads),
            ]
            .into_iter()
            .flat_map(|(name, help, value)| gauge(name, help, ratio(value, 1))),
        );
        if let Some(booted) = read("/proc/stat").as_deref().and_then(boot_time) {
            families.extend(gauge(
                "process_start_time_seconds",
                "When the process started, in seconds since 1970.",
                ratio(booted, 1) + ratio(stat.started_ticks, ticks),
            ));
        }
    }
    if let Ok(open) = open_descriptors() {
        families.extend(gauge("process_open_fds", "Open file descriptors.", ratio(open, 1)));
    }
    // `None` means unlimited.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    families.extend(gauge("process_max_fds", "The limit of file descriptors.", ratio(limit, 1)));
    families
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name of the program comes before, in brackets, and may contain anything.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        // proc(5) counts from 1 and the name is field 2.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn open_descriptors() -> io::Result<u64> {
    const FOLDER: &str = "/proc/self/fd";
    // Since Linux 6.2 the size of the folder is their number.
    match fs::metadata(FOLDER)?.len() {
        // Listing the folder opens one more.
        0 => Ok((fs::read_dir(FOLDER)?.count() as u64).saturating_sub(1)),
        count => Ok(count),
    }
}

#[expect(clippy::cast_precision_loss, reason = "no metric needs more than 52 bits")]
fn ratio(value: u64, by: u64) -> f64 {
    value as f64 / by as f64
}

fn counter(name: &str, help: &str, value: f64) -> Vec<MetricFamily> {
    let counter = valid(Counter::new(name, help));
    counter.inc_by(value);
    counter.collect()
}

fn gauge(name: &str, help: &str, value: f64) -> Vec<MetricFamily> {
    let gauge = valid(Gauge::new(name, help));
    gauge.set(value);
    gauge.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_stat_file_whose_program_has_an_odd_name() {
        let text = "42 (a) b 1 2) S 1 42 42 0 -1 4194304 500 0 3 0 120 30 0 0 20 0 7 0 \
                    123456 1048576 512 18446744073709551615 1 1 0 0";
        let stat = Stat::parse(text).unwrap();
        let expected = Stat {
            cpu_ticks: 150,
            threads: 7,
            started_ticks: 123_456,
            virtual_bytes: 1 << 20,
            resident_pages: 512,
        };
        assert_eq!(stat, expected);
        assert_eq!(Stat::parse("42 (cut off) S 1"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 5\n"), Some(1_700_000_000));
    }

    #[test]
    fn sees_this_process() {
        let families = families();
        let value = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).unwrap();
            let metric = &family.get_metric()[0];
            metric.get_gauge().get_value().max(metric.get_counter().get_value())
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_start_time_seconds") > 1.6e9);
        assert!(value("process_max_fds") > value("process_open_fds"));
        let before = value("process_open_fds");
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        let now = open_descriptors().unwrap();
        // Other tests open and close files as well.
        assert!(before >= 1.0 && now >= 50, "{before} {now}");
        drop(files);
    }
}
