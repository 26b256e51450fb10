//! A large store, of as many GB as `PROMBUS_BENCH_GB` says (default 2), in 100 topics: how long it takes
//! to open, how much memory it needs, what retention costs. Each step is a process of its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_engine::{DiskEngine, DiskOptions, Durability, Engine, Retention};

use crate::beside_a_publisher::beside_a_publisher;
use crate::events::{self, BATCH, EVENT_BYTES};
use crate::memory::resident_bytes;
use crate::report::Report;
use crate::runtime;

pub(crate) const CHILD: &str = "PROMBUS_BENCH_LARGE_FOLDER";
const STEP: &str = "PROMBUS_BENCH_LARGE_STEP";
const TOPICS: usize = 100;

fn gigabytes() -> usize {
    std::env::var("PROMBUS_BENCH_GB").map_or(2, |text| text.parse().expect("a number of GB"))
}

pub(crate) fn run(folder: &Path, report: &mut Report) {
    let gigabytes = gigabytes();
    let step = |name: &str| -> Vec<f64> {
        let program = std::env::current_exe().unwrap();
        let child = Command::new(program).env(CHILD, folder).env(STEP, name).output().unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        let text = String::from_utf8(child.stdout).unwrap();
        text.split_whitespace().map(|word| word.parse().unwrap()).collect()
    };
    let mib = |bytes: f64| format!("{:.0} MiB", bytes / f64::from(1 << 20));
    let mut row = |what: &str, ours: String, baseline: String| {
        report.row(&format!("(h) {gigabytes} GB: {what}"), ours, baseline, String::new(), "");
    };
    let [rate, memory] = step("fill")[..] else { panic!("expected two numbers") };
    row(
        "written, 100 topics",
        format!("{:.0} MB/s, then {}", rate / 1e6, mib(memory)),
        String::new(),
    );
    for (what, step_name) in [("opened after a kill", "open"), ("opened after a stop", "open")] {
        let [seconds, memory] = step(step_name)[..] else { panic!("expected two numbers") };
        row(what, format!("{:.0} ms, {}", seconds * 1e3, mib(memory)), String::new());
    }
    let [seconds, p99, longest, usual] = step("retain")[..] else {
        panic!("expected four numbers")
    };
    row(
        "half of it removed by retention",
        format!("{seconds:.2} s; another's p99 {p99:.2} ms, longest {longest:.0} ms"),
        format!("usual p99 {usual:.2} ms"),
    );
}

pub(crate) fn run_as_child(folder: &Path) {
    let start = Instant::now();
    let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&DiskOptions::at(folder)).unwrap());
    let opened = start.elapsed().as_secs_f64();
    runtime().block_on(async {
        match std::env::var(STEP).unwrap().as_str() {
            "fill" => {
                let rate = fill(&engine).await;
                println!("{rate} {}", resident_bytes());
                // As if it was killed: the log is not checkpointed.
                std::process::exit(0);
            }
            "open" => println!("{opened} {}", resident_bytes()),
            _ => retain_half(&engine).await,
        }
        engine.close().await.unwrap();
    });
}

/// Returns the bytes per second.
async fn fill(engine: &Arc<dyn Engine>) -> f64 {
    let rounds = gigabytes() * 1_000_000_000 / (EVENT_BYTES * BATCH * TOPICS);
    let ids = events::ids();
    let start = Instant::now();
    for _ in 0..rounds {
        let batches = (0..TOPICS)
            .flat_map(|topic| events::batches(&events::topic(topic), BATCH, &ids))
            .collect();
        events::commit_all(engine, batches, 8, Durability::Buffered).await;
    }
    (rounds * EVENT_BYTES * BATCH * TOPICS) as f64 / start.elapsed().as_secs_f64()
}

async fn retain_half(engine: &Arc<dyn Engine>) {
    let max_bytes = gigabytes() as u64 * 1_000_000_000 / TOPICS as u64 / 2;
    let rule = Retention { max_age_ms: None, max_bytes: Some(max_bytes), revision: 1 };
    let quiet = tokio::time::sleep(Duration::from_secs(2));
    let usual = beside_a_publisher(engine, TOPICS, quiet).await.p99;
    let retain = async {
        for topic in 0..TOPICS {
            engine.retain(&events::topic(topic), &rule).await.unwrap();
        }
        // While the files are removed.
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let beside = beside_a_publisher(engine, TOPICS, retain).await;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let seconds = beside.elapsed.as_secs_f64() - 1.0;
    println!("{seconds} {} {} {}", ms(beside.p99), ms(beside.longest), ms(usual));
}
