//! Deletes topics, as many as `PROMBUS_BENCH_DELETED_TOPICS` says (default 10,000) with 1,000 events each, while
//! somebody else publishes, and compares what is left on disk with an empty store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_engine::{Batch, DiskEngine, DiskOptions, Durability, Engine};

use crate::beside_a_publisher::beside_a_publisher;
use crate::report::Report;
use crate::{events, runtime};

const EVENTS: usize = 1000;
/// How long the store may take to settle after it was opened.
const SETTLING_TIME: Duration = Duration::from_secs(120);

pub(crate) fn run(folder: &Path, report: &mut Report) {
    runtime().block_on(delete_all(folder, report));
}

async fn delete_all(folder: &Path, report: &mut Report) {
    let topics: usize = std::env::var("PROMBUS_BENCH_DELETED_TOPICS")
        .map_or(10_000, |text| text.parse().expect("a number of topics"));
    let (empty, full) = (folder.join("empty"), folder.join("full"));
    DiskEngine::open(&DiskOptions::at(&empty)).unwrap().close().await.unwrap();
    let options = DiskOptions::at(&full);
    let open = || -> Arc<dyn Engine> { Arc::new(DiskEngine::open(&options).unwrap()) };
    let engine = open();
    let ids = events::ids();
    for number in 0..topics {
        let topic = events::topic(number);
        let events = (0..EVENTS).map(|_| events::event(&ids, &topic)).collect();
        engine.commit(Batch::of_events(events, Durability::Buffered)).await.unwrap();
    }
    engine.close().await.unwrap();
    let filled = usage(&full);
    let engine = open();
    let quiet = tokio::time::sleep(Duration::from_secs(2));
    let usual = beside_a_publisher(&engine, topics, quiet).await.p99;
    let deleting = async {
        for number in 0..topics {
            engine.commit(Batch::of_deletion(events::topic(number), vec![])).await.unwrap();
        }
    };
    let beside = beside_a_publisher(&engine, topics, deleting).await;
    report.row(
        &format!("(h) {topics} topics of {EVENTS} events deleted"),
        format!(
            "{:.1} s; another's p99 {:.1} ms",
            beside.elapsed.as_secs_f64(),
            beside.p99.as_secs_f64() * 1e3
        ),
        format!("usual p99 {:.2} ms", usual.as_secs_f64() * 1e3),
        format!("{:.1}", beside.p99.as_secs_f64() / usual.as_secs_f64()),
        "at most 2",
    );
    // The topic of the other publisher.
    engine.commit(Batch::of_deletion(events::topic(topics), vec![])).await.unwrap();
    engine.close().await.unwrap();
    let start = Instant::now();
    let engine = open();
    while start.elapsed() < SETTLING_TIME && usage(&full).0 > usage(&empty).0 + 64 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    engine.close().await.unwrap();
    let (left, baseline) = (usage(&full), usage(&empty));
    report.row(
        "(h) left of them on disk",
        format!("{} files, {} KiB", left.0, left.1 >> 10),
        format!(
            "empty {} files, {} KiB; full {} MiB",
            baseline.0,
            baseline.1 >> 10,
            filled.1 >> 20
        ),
        format!("{} files more", left.0.saturating_sub(baseline.0)),
        "those of an empty store",
    );
}

/// Returns the number of files and folders, and the bytes of the files.
fn usage(folder: &Path) -> (usize, u64) {
    let mut sum = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap().map_while(Result::ok) {
        sum.0 += 1;
        match entry.metadata() {
            Ok(found) if found.is_dir() => {
                let (files, bytes) = usage(&entry.path());
                sum = (sum.0 + files, sum.1 + bytes);
            }
            Ok(found) => sum.1 += found.len(),
            Err(_) => {}
        }
    }
    sum
}
