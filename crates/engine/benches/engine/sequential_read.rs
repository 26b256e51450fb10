//! Reading a whole topic, compared with plain reads of its files.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use prombus_engine::{DiskEngine, DiskOptions, Durability, Engine, ReadBudget};
use prombus_proto::Seq;

use crate::events;
use crate::report::{Report, median, million};
use crate::runtime;

const EVENTS: usize = 1_000_000;
const ROUNDS: usize = 5;
const PAGE_BYTES: usize = 1 << 20;

pub(crate) fn run(folder: &Path, report: &mut Report) {
    runtime().block_on(async {
        let options = DiskOptions::at(folder);
        let topic = events::topic(0);
        let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&options).unwrap());
        let batches = events::batches(&topic, EVENTS, &events::ids());
        events::commit_all(&engine, batches, 8, Durability::Buffered).await;
        engine.close().await.unwrap();
        let engine = DiskEngine::open(&options).unwrap();
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(plain_read(&folder.join("topics").join(topic.as_str())));
            let start = Instant::now();
            let mut next = Seq::FIRST;
            loop {
                let budget = ReadBudget::of_bytes(PAGE_BYTES);
                let page = engine.read(&topic, next, budget).await.unwrap();
                let Some(last) = page.events.last() else { break };
                next = last.seq.next();
            }
            assert_eq!(next.previous(), Seq(EVENTS as u64));
            ours.push(EVENTS as f64 / start.elapsed().as_secs_f64());
        }
        let (plain, ours) = (median(plain), median(ours));
        report.row(
            "(c) sequential read from segments, pages of 1 MiB",
            million(ours),
            format!("plain read of the files {}", million(plain)),
            format!("{:.2}", ours / plain),
            "≥ 2 M/s or ≥ 0.5",
        );
    });
}

/// Returns the rate of plain file reads, in events per second.
fn plain_read(folder: &Path) -> f64 {
    let mut buffer = vec![0; PAGE_BYTES];
    let start = Instant::now();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            let mut file = File::open(path).unwrap();
            while file.read(&mut buffer).unwrap() > 0 {}
        }
    }
    EVENTS as f64 / start.elapsed().as_secs_f64()
}
