//! Buffered appends in batches, compared with a plain loop that writes and checksums the same bytes.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use prombus_engine::{DiskEngine, DiskOptions, Durability, Engine};

use prombus_proto::Seq;

use crate::events::{self, BATCH, EVENT_BYTES};
use crate::report::{Report, median, million};
use crate::runtime;

const EVENTS: usize = 1_000_000;
const ROUNDS: usize = 5;
const WINDOW: usize = 32;

pub(crate) fn run(folder: &Path, report: &mut Report) {
    let (mut plain, mut bare, mut engine, mut moved) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        plain.push(plain_loop(&folder.join("plain")));
        let (committed, checkpointed) = engine_append(&folder.join(format!("engine-{round}")));
        engine.push(committed);
        moved.push(checkpointed);
        bare.push(bare_loop(&folder.join("plain")));
    }
    let (plain, bare) = (median(plain), median(bare));
    let (engine, moved) = (median(engine), median(moved));
    let mut row = |what: &str, ours: f64, baseline_is: &str, baseline: f64, goal: &str| {
        let baseline_text = format!("{baseline_is} {}", million(baseline));
        report.row(what, million(ours), baseline_text, format!("{:.2}", ours / baseline), goal);
    };
    let what = format!("(a) buffered append, {EVENT_BYTES} bytes, batches of {BATCH}");
    row(&what, engine, "plain loop: JSON of the same events, checksum, write", plain, "≥ 0.5");
    row(&what, engine, "bare loop: checksum and write of one buffer", bare, "");
    let what = "(a) the same until all of it is in synced segments and the log is cut";
    row(what, moved, "plain loop, not synced", plain, "");
}

/// Writes the JSON of the same events to a file, one buffer per batch, with a checksum after each event.
fn plain_loop(path: &Path) -> f64 {
    let batches = events::batches(&events::topic(0), EVENTS, &events::ids());
    let mut file = File::create(path).unwrap();
    let mut buffer = Vec::new();
    let mut seq = Seq::ZERO;
    let start = Instant::now();
    for batch in &batches {
        buffer.clear();
        for event in batch {
            seq = seq.next();
            let offset = buffer.len();
            event.write_json(seq, &mut buffer);
            let sum = crc_fast::crc32_iscsi(&buffer[offset..]);
            buffer.extend_from_slice(&sum.to_le_bytes());
        }
        file.write_all(&buffer).unwrap();
    }
    let rate = EVENTS as f64 / start.elapsed().as_secs_f64();
    std::fs::remove_file(path).unwrap();
    rate
}

/// Writes the same buffer again and again: the limit set by the operating system.
fn bare_loop(path: &Path) -> f64 {
    let batch = vec![b'x'; BATCH * EVENT_BYTES];
    let mut file = File::create(path).unwrap();
    let start = Instant::now();
    for _ in 0..EVENTS / BATCH {
        black_box(crc_fast::crc32_iscsi(black_box(&batch)));
        file.write_all(&batch).unwrap();
    }
    let rate = EVENTS as f64 / start.elapsed().as_secs_f64();
    std::fs::remove_file(path).unwrap();
    rate
}

fn engine_append(folder: &Path) -> (f64, f64) {
    let batches = events::batches(&events::topic(0), EVENTS, &events::ids());
    let rates = runtime().block_on(async {
        let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&DiskOptions::at(folder)).unwrap());
        let start = Instant::now();
        events::commit_all(&engine, batches, WINDOW, Durability::Buffered).await;
        let committed = EVENTS as f64 / start.elapsed().as_secs_f64();
        engine.close().await.unwrap();
        (committed, EVENTS as f64 / start.elapsed().as_secs_f64())
    });
    std::fs::remove_dir_all(folder).unwrap();
    rates
}
