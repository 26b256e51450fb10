//! The cost of reading over HTTP: `make bench-reading`.
//!
//! Fills a store with events of 236 bytes and starts the binary on it. Measures
//!
//! - the throughput of an export, next to a plain file served by the same HTTP libraries,
//! - the growth of the server's memory meanwhile, and with readers that stop reading,
//! - a replay by time in a large and in a small topic,
//!
//! and checks that an interrupted and resumed export contains each event once.

#![allow(clippy::print_stdout)] // a benchmark prints its results

mod client;
mod export;
mod plain_file;
mod replay;
#[path = "../server_process.rs"]
mod server_process;
mod store;

use std::error::Error;
use std::path::{Path, PathBuf};

use server_process::ServerProcess;

type Failure = Box<dyn Error + Send + Sync>;

const DEFAULT_COUNT: u64 = 5_000_000;
const SMALL_COUNT: u64 = 5000;

fn main() -> Result<(), Failure> {
    if let Some(path) = std::env::var_os(plain_file::FILE_VARIABLE) {
        return plain_file::serve(Path::new(&path));
    }
    // Skips arguments that `cargo bench` adds, such as --bench.
    let count =
        std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(DEFAULT_COUNT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(count))
}

async fn measure(count: u64) -> Result<(), Failure> {
    // In the build folder, which is on a disk; the default temporary folder may be in memory.
    let folder = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
    let data = folder.path().join("data");
    store::fill(&data, &[("large", count), ("small", SMALL_COUNT)]).await?;
    let data = data.to_str().ok_or("the folder name is not UTF-8")?;
    let server = ServerProcess::start(&[
        "--data",
        data,
        "--set",
        "limits.enabled=false",
        "--set",
        "log.level=error",
    ])?;
    println!("{count} events");
    export::speed_and_memory(&server, &folder.path().join("plain")).await?;
    export::interrupted_and_resumed(&server, count).await?;
    export::with_stopped_readers(&server).await?;
    replay::by_time(&server, count, SMALL_COUNT).await?;
    server.stop()
}
