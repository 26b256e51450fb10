//! The cost of marks: `make bench-marks`.
//!
//! Marks a million events of one group on a disk store, looks up existing and missing marks, and lets
//! all of them expire. Prints time, memory and disk usage, and for comparison the time to append the
//! same bytes to a plain file with as many syncs.

#![allow(clippy::print_stdout, clippy::unwrap_used)] // A benchmark prints its results.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_bus::{
    Bus, ConfiguredTopics, DEFAULT_MARK_TTL, MemoryLimits, RetryDelays, Settings,
    SubscriptionDefaults,
};
use prombus_engine::{DiskEngine, DiskOptions};
use prombus_proto::{
    Clock, EventId, Group, IdSource, ManualClock, SystemClock, SystemRandom, Topic,
};

const DEFAULT_COUNT: usize = 1_000_000;
const MARKS_PER_COMMIT: usize = 1000;
const LOOKUPS: usize = 100_000;
/// Only an engine that hangs takes this long.
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() {
    // `cargo bench` adds arguments such as --bench.
    let count =
        std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(DEFAULT_COUNT);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure(count));
}

async fn measure(count: usize) {
    // On the file system of the build, which is a disk; the temporary folder may be in memory.
    let folder = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let data = folder.path().join("data");
    let ids = IdSource::new(Arc::new(SystemClock), Arc::new(SystemRandom));
    let marked: Vec<EventId> = (0..count).map(|_| ids.next_id()).collect();
    let missing: Vec<EventId> = (0..LOOKUPS).map(|_| ids.next_id()).collect();
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let bus = start(&data, &clock);
    let (topic, group) = (Topic::new("orders").unwrap(), Group::new("billing").unwrap());
    let memory_before = resident_bytes();

    let connection = bus.connect();
    let started = Instant::now();
    for ids in marked.chunks(MARKS_PER_COMMIT) {
        let mut marking =
            bus.mark(&connection, &topic, &group, ids, DEFAULT_MARK_TTL).await.unwrap();
        marking.stored().await.unwrap();
    }
    let marking = started.elapsed();
    let memory_after = resident_bytes();
    let plain = append_to_plain_file(&folder.path().join("plain"), &marked);
    println!("{count} marks, {MARKS_PER_COMMIT} per commit, each commit synced");
    println!("  mark          {} each", per(marking, count));
    let ratio = marking.as_secs_f64() / plain.as_secs_f64();
    println!("  plain file    {} each, ratio {ratio:.2}", per(plain, count));
    println!("  memory        {} before, {} after", mib(memory_before), mib(memory_after));
    until(|| wal_files(&data) <= 1).await;
    let full = bytes_below(&data.join("state"));
    println!(
        "  disk          {} of state, {} of log",
        mib(full),
        mib(bytes_below(&data.join("wal")))
    );

    let existing: Vec<_> = (0..LOOKUPS).map(|n| marked[n * 7919 % count].clone()).collect();
    for (what, ids) in [("existing", &existing), ("missing", &missing)] {
        for batch in [1, 100] {
            let started = Instant::now();
            for ids in ids.chunks(batch) {
                black_box(bus.seen(&topic, &group, ids.to_vec()).await.unwrap());
            }
            let each = per(started.elapsed(), ids.len());
            println!("  seen          {each} per {what} mark, {batch} per lookup");
        }
    }

    clock.advance_ms(2 * u64::try_from(DEFAULT_MARK_TTL.as_millis()).unwrap());
    let started = Instant::now();
    until(|| bytes_below(&data.join("state")) <= full / 100).await;
    let left = bytes_below(&data.join("state"));
    println!("  expired       {} of state left after {:?}", mib(left), started.elapsed());
    bus.close().await.unwrap();
}

fn start(data: &Path, clock: &Arc<ManualClock>) -> Bus {
    let options = DiskOptions { clock: clock.clone(), ..DiskOptions::at(data) };
    let settings = Settings {
        connection_rate: None,
        connection_bytes_per_sec: None,
        principal_rate: None,
        max_counts: None,
        topic_rate: None,
        topics: ConfiguredTopics::default(),
        max_outbox_bytes: 1 << 20,
        memory: MemoryLimits::of_each(64 << 20),
        subscription: SubscriptionDefaults {
            max_in_flight: 100,
            ack_timeout: Duration::from_secs(30),
            max_attempts: 5,
        },
        retry: RetryDelays {
            first: Duration::from_secs(1),
            factor: 5,
            max: Duration::from_secs(600),
        },
        group_lease: Duration::from_secs(10),
        spans: None,
    };
    let ids = IdSource::new(Arc::new(SystemClock), Arc::new(SystemRandom));
    let engine = Arc::new(DiskEngine::open(&options).unwrap());
    Bus::start(engine, settings, clock.clone(), Arc::new(ids))
}

fn append_to_plain_file(path: &Path, ids: &[EventId]) -> Duration {
    let mut file = File::create(path).unwrap();
    let started = Instant::now();
    for ids in ids.chunks(MARKS_PER_COMMIT) {
        let mut bytes = Vec::new();
        for id in ids {
            write!(bytes, "dedupe/orders::billing::{id}1").unwrap();
        }
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
    }
    started.elapsed()
}

async fn until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "the engine hangs");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn wal_files(data: &Path) -> usize {
    std::fs::read_dir(data.join("wal")).unwrap().count()
}

fn bytes_below(folder: &Path) -> u64 {
    // A file may be deleted in the meantime.
    let sizes = std::fs::read_dir(folder).unwrap().filter_map(|file| file.ok()?.metadata().ok());
    sizes.map(|file| file.len()).sum()
}

fn per(time: Duration, count: usize) -> String {
    format!("{:.2} µs", time.as_secs_f64() * 1e6 / count as f64)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
