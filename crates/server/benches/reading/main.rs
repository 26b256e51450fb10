//! What reading over HTTP costs: `make bench-reading`.
//!
//! Fills a store with events of 236 bytes, starts the binary over it and prints: how fast an export
//! is beside the same bytes from a plain file through the same HTTP libraries, what the server's
//! memory grows by meanwhile (also with a reader that stops reading), whether an export that was
//! broken off and resumed has each event once, and what a replay by time costs in a large topic
//! and in a small one.

#![allow(clippy::print_stdout)] // A bench talks to whoever runs it.

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

const USUAL_COUNT: u64 = 5_000_000;
const SMALL_COUNT: u64 = 5000;

fn main() -> Result<(), Failure> {
    if let Some(path) = std::env::var_os(plain_file::SERVED) {
        return plain_file::serve(Path::new(&path));
    }
    // `cargo bench` adds words of its own, such as --bench.
    let count = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(USUAL_COUNT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(count))
}

async fn measure(count: u64) -> Result<(), Failure> {
    // On the filesystem that is built on, which is a disk; the usual temporary folder may be memory.
    let folder = tempfile::tempdir_in(PathBuf::from(env!("CARGO_TARGET_TMPDIR")))?;
    let data = folder.path().join("data");
    store::fill(&data, &[("large", count), ("small", SMALL_COUNT)]).await?;
    let data = data.to_str().ok_or("the folder has an odd name")?;
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
    export::broken_off_and_resumed(&server, count).await?;
    export::with_a_reader_that_stops(&server).await?;
    replay::by_time(&server, count, SMALL_COUNT).await?;
    server.stop()
}
