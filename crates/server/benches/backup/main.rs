//! The cost of a backup of a running server: `make bench-backup`.
//!
//! Fills a store with N events and starts the binary on it. While events are published at a fixed rate,
//! measures
//!
//! - the time of `prombus backup`, next to `cp` and `sync` of the same bytes beside the same publishers,
//! - how long publishers wait for an answer, next to a time without a backup,
//!
//! and checks that the backup restores.
//!
//! Arguments: the number of events (default 5,000,000), and the rate (default 50,000 per second).

#![allow(clippy::print_stdout)] // a benchmark prints its results

#[path = "../server_process.rs"]
mod server_process;
#[path = "../reading/store.rs"]
#[allow(dead_code, reason = "the other benchmark needs all of it")]
mod store;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_bench::{Load, Progress, Tally, Target, Wire, bench_publish};
use prombus_client::transport::{Protocol, ServerAddress};
use server_process::ServerProcess;
use tokio::runtime::Runtime;

type Failure = Box<dyn Error + Send + Sync>;

const DEFAULT_COUNT: u64 = 5_000_000;
const DEFAULT_RATE: u64 = 50_000;
/// How long publishers are measured without a backup.
const ALONE: Duration = Duration::from_secs(15);
/// More than anything here takes.
const LONGEST: Duration = Duration::from_secs(1800);
const WARM_UP: Duration = Duration::from_secs(2);
const EVENTS_PER_FRAME: u64 = 50;

fn main() -> Result<(), Failure> {
    // Skips arguments that `cargo bench` adds, such as --bench.
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let count = numbers.next().unwrap_or(DEFAULT_COUNT);
    let rate = numbers.next().unwrap_or(DEFAULT_RATE);
    // In the build folder, which is on a disk; the default temporary folder may be in memory.
    let folder = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
    let data = folder.path().join("data");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(store::fill(&data, &[("large", count)]))?;
    let bytes = bytes_below(&data)?;
    // What is copied: the server changes its own folder meanwhile.
    let original = folder.path().join("original");
    copy(&data, &original)?;
    let data_text = data.to_str().ok_or("the folder name is not UTF-8")?;
    let set = ["--data", data_text, "--set", "limits.enabled=false", "--set", "log.level=error"];
    let server = ServerProcess::start(&set)?;
    println!("{count} events, {} MiB; {rate} events/s are published", bytes >> 20);

    let publishing = Publishers::start(&server, rate)?;
    std::thread::sleep(ALONE);
    let alone = publishing.stop();
    print_latency("without a backup", &alone, &alone);

    let publishing = Publishers::start(&server, rate)?;
    let copied = timed(|| copy(&original, &folder.path().join("copy")))?;
    let beside_copy = publishing.stop();
    print_speed("cp and sync", bytes, copied, copied);
    print_latency("beside cp", &beside_copy, &alone);
    std::fs::remove_dir_all(folder.path().join("copy"))?;

    let publishing = Publishers::start(&server, rate)?;
    let file = folder.path().join("a.backup");
    let backed_up = timed(|| back_up(&server, &file))?;
    let beside_backup = publishing.stop();
    print_speed("prombus backup", bytes, backed_up, copied);
    print_latency("beside a backup", &beside_backup, &alone);
    println!("{:<18} {:>9.2} of the store's size", "size", ratio(file.metadata()?.len(), bytes));
    server.stop()?;

    let restored = folder.path().join("restored");
    let restoring = timed(|| {
        let mut restore = Command::new(env!("CARGO_BIN_EXE_prombus"));
        restore.arg("restore").arg(&file).arg("--data").arg(&restored);
        run(&mut restore)
    })?;
    print_speed("prombus restore", bytes, restoring, copied);
    Ok(())
}

/// Connections that publish at a fixed rate until this is dropped.
struct Publishers {
    runtime: Runtime,
    tally: Arc<Tally>,
}

impl Publishers {
    fn start(server: &ServerProcess, rate: u64) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let url = format!("ws://{}/", server.ws);
        let target =
            Target::Wire(Wire::new(ServerAddress::new(&url, Protocol::WebSocket, None)?, None));
        let load = Load {
            events: rate * LONGEST.as_secs(),
            batch: EVENTS_PER_FRAME,
            window: 100_000,
            connections: 4,
            rate: Some(rate as f64),
            ..Load::default()
        };
        let tally = Arc::new(Tally::default());
        let counted = Arc::clone(&tally);
        runtime.spawn(async move {
            if let Err(error) = bench_publish(&target, &load, &counted).await {
                eprintln!("the publishers failed: {error}");
            }
        });
        // The connections are open, and the first answers are there.
        std::thread::sleep(WARM_UP);
        // What came before does not count.
        let _ = tally.progress();
        Ok(Self { runtime, tally })
    }

    /// Returns the latencies since the start.
    fn stop(self) -> Progress {
        let progress = self.tally.progress();
        self.runtime.shutdown_background();
        progress
    }
}

fn back_up(server: &ServerProcess, file: &Path) -> Result<(), Failure> {
    let mut backup = Command::new(env!("CARGO_BIN_EXE_prombus"));
    backup.args(["backup", "--url", &format!("http://{}", server.http), "--output"]).arg(file);
    run(&mut backup)
}

/// Copies a folder and makes the copy durable, as a backup is.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    run(Command::new("cp").arg("-r").arg(from).arg(to))?;
    run(Command::new("sync").arg("-f").arg(to))
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed: {status}").into()) }
}

fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn bytes_below(folder: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_below(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn print_speed(what: &str, bytes: u64, time: Duration, baseline: Duration) {
    let speed = bytes as f64 / time.as_secs_f64() / f64::from(1 << 20);
    let ratio = baseline.as_secs_f64() / time.as_secs_f64();
    println!("{what:<18} {speed:>9.0} MiB/s  {ratio:.2} x cp");
}

fn print_latency(what: &str, found: &Progress, alone: &Progress) {
    let (p99, alone) = (found.recent.p99, alone.recent.p99);
    println!("{what:<18} {p99:>9.2} ms p99  {:.2} x alone", p99 / alone);
}
