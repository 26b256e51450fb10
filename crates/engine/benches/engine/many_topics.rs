//! Many topics with one event each: 10,000 in one commit, and as many as `PROMBUS_BENCH_TOPICS` says (default
//! 20,000) while somebody else publishes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_engine::{Batch, DiskEngine, DiskOptions, Durability, Engine};
use prombus_proto::Seq;

use crate::beside_a_publisher::{Beside, beside_a_publisher};
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
    runtime().block_on(others_keep_publishing(&folder.join("many"), report));
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn others_keep_publishing(folder: &Path, report: &mut Report) {
    let topics: usize = std::env::var("PROMBUS_BENCH_TOPICS")
        .map_or(20_000, |text| text.parse().expect("a number of topics"));
    // One file has most of the topics, so that one checkpoint moves them.
    let wal_file_bytes = topics as u64 * 250;
    let options = DiskOptions { wal_file_bytes, ..DiskOptions::at(folder) };
    let open = || -> Arc<dyn Engine> { Arc::new(DiskEngine::open(&options).unwrap()) };
    let engine = open();
    let quiet = tokio::time::sleep(Duration::from_secs(2));
    let usual = beside_a_publisher(&engine, topics, quiet).await.p99;
    let mut row = |what: &str, Beside { elapsed, p99, longest }| {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        report.row(
            &format!("(g) {topics} topics: {what}"),
            format!(
                "{:.1} s; another's p99 {:.1} ms, longest {:.0} ms",
                elapsed.as_secs_f64(),
                ms(p99),
                ms(longest)
            ),
            format!("usual p99 {:.2} ms", ms(usual)),
            format!(
                "{:.1}, longest {:.1}",
                p99.as_secs_f64() / usual.as_secs_f64(),
                longest.as_secs_f64() / usual.as_secs_f64()
            ),
            "at most 10",
        );
    };
    let ids = events::ids();
    let create = async {
        for first in (0..topics).step_by(500) {
            let events = (first..topics.min(first + 500))
                .map(|number| events::event(&ids, &events::topic(number)))
                .collect();
            engine.commit(Batch::of_events(events, Durability::Buffered)).await.unwrap();
        }
        // Until everything is in segments.
        while std::fs::read_dir(folder.join("wal")).unwrap().count() > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    row("created and checkpointed", beside_a_publisher(&engine, topics, create).await);
    let trim = async {
        for number in 0..topics {
            engine.trim(&events::topic(number), Seq(2)).await.unwrap();
        }
    };
    row("each trimmed", beside_a_publisher(&engine, topics, trim).await);
    let start = Instant::now();
    engine.close().await.unwrap();
    let closed = start.elapsed();
    let start = Instant::now();
    let engine = open();
    let opened = start.elapsed();
    engine.close().await.unwrap();
    report.row(
        &format!("(g) {topics} topics: closed; opened"),
        format!("{:.2} s; {:.2} s", closed.as_secs_f64(), opened.as_secs_f64()),
        String::new(),
        String::new(),
        "",
    );
}
