//! Ten thousand topics with one event each.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use prombus_engine::{Batch, DiskEngine, DiskOptions, Durability, Engine};

use crate::events;
use crate::report::Report;
use crate::runtime;

const TOPICS: usize = 10_000;

pub(crate) fn run(folder: &Path, report: &mut Report) {
    runtime().block_on(async {
        let options = DiskOptions::at(folder);
        let ids = events::ids();
        let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&options).unwrap());
        let one = |number: usize| vec![events::event(&ids, &events::topic(number))];
        // The first commit creates the log file.
        engine.commit(Batch::of_events(one(TOPICS), Durability::Fsync)).await.unwrap();
        let start = Instant::now();
        engine.commit(Batch::of_events(one(TOPICS), Durability::Fsync)).await.unwrap();
        let single = start.elapsed();
        let events: Vec<_> = (0..TOPICS).flat_map(one).collect();
        let syncs = options.faults.syncs();
        let start = Instant::now();
        engine.commit(Batch::of_events(events, Durability::Fsync)).await.unwrap();
        let elapsed = start.elapsed();
        let syncs = options.faults.syncs() - syncs;
        report.row(
            "(f) one commit to 10,000 topics, one event each",
            format!("{:.1} ms, {syncs} sync", elapsed.as_secs_f64() * 1e3),
            format!("to one topic {:.2} ms", single.as_secs_f64() * 1e3),
            format!("{:.1}", elapsed.as_secs_f64() / single.as_secs_f64()),
            "1 sync",
        );
        let syncs = options.faults.syncs();
        let start = Instant::now();
        engine.close().await.unwrap();
        let closed = start.elapsed();
        let syncs = options.faults.syncs() - syncs;
        let engine = {
            let start = Instant::now();
            let engine = DiskEngine::open(&options).unwrap();
            let opened = start.elapsed();
            report.row(
                "(f) moving these into 10,000 segments; opening them again",
                format!(
                    "{:.0} ms with {syncs} syncs; {:.0} ms",
                    closed.as_secs_f64() * 1e3,
                    opened.as_secs_f64() * 1e3
                ),
                String::new(),
                format!("{} open files", open_files()),
                "",
            );
            engine
        };
        engine.close().await.unwrap();
    });
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
