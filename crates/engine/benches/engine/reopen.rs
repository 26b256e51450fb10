//! Opening a store after its process was killed, compared with reading its write-ahead log once.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use prombus_engine::{DiskEngine, DiskOptions, Durability, Engine};

use rustix::fs::SeekFrom;

use crate::events;
use crate::report::{Report, median};
use crate::runtime;

pub(crate) const CHILD: &str = "PROMBUS_BENCH_REOPEN_FOLDER";
const WAL_BYTES: &str = "PROMBUS_BENCH_REOPEN_WAL_BYTES";
const EVENTS: usize = 1_000_000;
const ROUNDS: usize = 3;

pub(crate) fn run(folder: &Path, report: &mut Report) {
    let default = DiskOptions::at("").wal_file_bytes;
    for (name, wal_bytes) in [
        ("(d) reopen after a kill, 1 M events, all of them in the log", 1 << 30),
        ("(d) reopen after a kill, 1 M events, default log files", default),
    ] {
        let (mut plain, mut ours, mut log) = (Vec::new(), Vec::new(), 0);
        for round in 0..ROUNDS {
            let folder = folder.join(format!("{wal_bytes}-{round}"));
            fill_and_kill(&folder, wal_bytes);
            // Reads the log once so that both measurements find it in the page cache.
            read_log(&folder);
            let (seconds, bytes) = read_log(&folder);
            plain.push(seconds);
            log = bytes;
            let start = Instant::now();
            let engine = DiskEngine::open(&options(&folder, wal_bytes)).unwrap();
            ours.push(start.elapsed().as_secs_f64());
            drop(engine);
            fs::remove_dir_all(&folder).unwrap();
        }
        let (plain, ours) = (median(plain), median(ours));
        report.row(
            name,
            format!("{:.1} ms", ours * 1e3),
            format!("reading {} MiB of log once {:.1} ms", log >> 20, plain * 1e3),
            format!("{:.2}", ours / plain),
            "≤ 2",
        );
    }
}

fn options(folder: &Path, wal_bytes: u64) -> DiskOptions {
    DiskOptions { wal_file_bytes: wal_bytes, ..DiskOptions::at(folder) }
}

fn fill_and_kill(folder: &Path, wal_bytes: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, folder)
        .env(WAL_BYTES, wal_bytes.to_string())
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "filled\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

pub(crate) fn fill_and_wait(folder: &Path) {
    let wal_bytes = std::env::var(WAL_BYTES).unwrap().parse().unwrap();
    runtime().block_on(async {
        let engine: Arc<dyn Engine> =
            Arc::new(DiskEngine::open(&options(folder, wal_bytes)).unwrap());
        let batches = events::batches(&events::topic(0), EVENTS, &events::ids());
        events::commit_all(&engine, batches, 8, Durability::Fsync).await;
        println!("filled");
        std::io::stdout().flush().unwrap();
        // The parent kills this process here. If the parent is gone, its closed pipe ends the wait.
        let _ = std::io::stdin().read(&mut [0]);
    });
}

/// Reads the written part of the log with plain reads.
fn read_log(folder: &Path) -> (f64, u64) {
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    let start = Instant::now();
    for entry in fs::read_dir(folder.join("wal")).unwrap() {
        let mut file = File::open(entry.unwrap().path()).unwrap();
        let written = rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap();
        rustix::fs::seek(&file, SeekFrom::Start(0)).unwrap();
        let mut left = usize::try_from(written).unwrap();
        while left > 0 {
            let wanted = left.min(buffer.len());
            left -= file.read(&mut buffer[..wanted]).unwrap();
        }
        total += written;
    }
    (start.elapsed().as_secs_f64(), total)
}
