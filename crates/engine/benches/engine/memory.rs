//! Resident memory after many events in many topics.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use prombus_engine::{DiskEngine, DiskOptions, Durability, Engine};

use crate::events;
use crate::report::Report;
use crate::runtime;

pub(crate) const CHILD: &str = "PROMBUS_BENCH_MEMORY_FOLDER";
const EVENTS: usize = 5_000_000;
const TOPICS: usize = 100;

pub(crate) fn run(folder: &Path, report: &mut Report) {
    let child = Command::new(std::env::current_exe().unwrap()).env(CHILD, folder).output().unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [before, after, idle] = numbers[..] else { panic!("expected three numbers: {text:?}") };
    let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
    report.row(
        "(e) resident memory after 5 M events in 100 topics, right after the last commit",
        mib(after),
        format!("empty store {}", mib(before)),
        format!("{:.0} KiB per topic", (after - before) / 1024.0 / TOPICS as f64),
        "",
    );
    report.row(
        "(e) the same, reopened",
        mib(idle),
        String::new(),
        format!("{:.0} KiB per topic", (idle - before) / 1024.0 / TOPICS as f64),
        "",
    );
}

pub(crate) fn fill_and_report(folder: &Path) {
    let engine = |folder: &Path| -> Arc<dyn Engine> {
        Arc::new(DiskEngine::open(&DiskOptions::at(folder)).unwrap())
    };
    runtime().block_on(async {
        let filled = engine(folder);
        let before = resident_bytes();
        let ids = events::ids();
        for round in 0..EVENTS / TOPICS / events::BATCH {
            let batches = (0..TOPICS)
                .flat_map(|topic| events::batches(&events::topic(topic), events::BATCH, &ids))
                .collect();
            events::commit_all(&filled, batches, 8, Durability::Buffered).await;
            assert!(round < EVENTS);
        }
        let after = resident_bytes();
        filled.close().await.unwrap();
        drop(filled);
        // Includes memory that the allocator has not returned; a separate process would be exact.
        let reopened = engine(folder);
        println!("{before} {after} {}", resident_bytes());
        reopened.close().await.unwrap();
    });
}

pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
