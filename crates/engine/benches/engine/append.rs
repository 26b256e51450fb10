//! Buffered appends in batches, beside a plain loop that writes and checksums the same bytes.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use prombus_engine::{DiskEngine, DiskOptions, Durability, Engine};

use crate::events::{self, BATCH, EVENT_BYTES};
use crate::report::{Report, median, million};
use crate::runtime;

const EVENTS: usize = 1_000_000;
const ROUNDS: usize = 5;
const WINDOW: usize = 16;

pub(crate) fn run(folder: &Path, report: &mut Report) {
    let (mut plain, mut engine, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        plain.push(plain_loop(&folder.join("plain")));
        let (answered, all_moved) = appended(&folder.join(format!("engine-{round}")));
        engine.push(answered);
        moved.push(all_moved);
    }
    let (plain, engine, moved) = (median(plain), median(engine), median(moved));
    report.row(
        &format!("(a) buffered append, {EVENT_BYTES} bytes, batches of {BATCH}"),
        million(engine),
        format!("plain write with checksum {}", million(plain)),
        format!("{:.2}", engine / plain),
        "≥ 0.5",
    );
    report.row(
        "(a) the same until all of it is in synced segments and the log is cut",
        million(moved),
        million(plain),
        format!("{:.2}", moved / plain),
        "",
    );
}

fn plain_loop(path: &Path) -> f64 {
    let batch = vec![b'x'; BATCH * EVENT_BYTES];
    let mut file = File::create(path).unwrap();
    let started = Instant::now();
    for _ in 0..EVENTS / BATCH {
        let sum = crc_fast::crc32_iscsi(&batch);
        file.write_all(&sum.to_le_bytes()).unwrap();
        file.write_all(&batch).unwrap();
    }
    let rate = EVENTS as f64 / started.elapsed().as_secs_f64();
    std::fs::remove_file(path).unwrap();
    rate
}

fn appended(folder: &Path) -> (f64, f64) {
    let batches = events::batches(&events::topic(0), EVENTS, &events::ids());
    let rates = runtime().block_on(async {
        let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&DiskOptions::at(folder)).unwrap());
        let started = Instant::now();
        events::commit_all(&engine, batches, WINDOW, Durability::Buffered).await;
        let answered = EVENTS as f64 / started.elapsed().as_secs_f64();
        engine.close().await.unwrap();
        (answered, EVENTS as f64 / started.elapsed().as_secs_f64())
    });
    std::fs::remove_dir_all(folder).unwrap();
    rates
}
