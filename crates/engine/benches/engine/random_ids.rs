//! Buffered appends of events with random ids, each of which is looked up: the rate as their number
//! grows. `PROMBUS_BENCH_RANDOM_IDS=30000000` measures as many ids.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prombus_engine::{DiskEngine, DiskOptions, Durability, Engine};
use prombus_proto::{
    EncodedEvent, Event, EventId, Headers, Payload, RandomSource, SystemRandom, Timestamp,
};

use crate::events::{self, BATCH};
use crate::report::Report;
use crate::runtime;

const COUNT: &str = "PROMBUS_BENCH_RANDOM_IDS";
const DEFAULT_COUNT: usize = 4_000_000;
/// A rate is measured over this many commits.
const STEP: usize = 500_000;
const ROWS: usize = 8;
const WINDOW: usize = 32;

pub(crate) fn run(folder: &Path, report: &mut Report) {
    let count = std::env::var(COUNT).map_or(DEFAULT_COUNT, |text| text.parse().expect(COUNT));
    let steps = (count / STEP).max(1);
    let (rates, closed) = runtime().block_on(async {
        let engine: Arc<dyn Engine> = Arc::new(DiskEngine::open(&DiskOptions::at(folder)).unwrap());
        let mut rates = Vec::new();
        for step in 1..=steps {
            let batches = batches();
            let start = Instant::now();
            events::commit_all(&engine, batches, WINDOW, Durability::Buffered).await;
            let rate = STEP as f64 / start.elapsed().as_secs_f64();
            eprintln!("  {:>5.1} M ids: {:.0} k/s", (step * STEP) as f64 / 1e6, rate / 1e3);
            rates.push(rate);
        }
        let start = Instant::now();
        engine.close().await.unwrap();
        (rates, start.elapsed())
    });
    for part in rates.chunks(steps.div_ceil(ROWS)).scan(0, |ids, part| {
        *ids += part.len() * STEP;
        Some((*ids, part))
    }) {
        let (ids, rates) = part;
        // The mean time per event, because merges slow down some steps.
        let rate = rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>();
        report.row(
            &format!("(h) random ids, up to {:.1} M of them", ids as f64 / 1e6),
            format!("{:.0} k/s", rate / 1e3),
            String::new(),
            String::new(),
            "≥ 150 k/s at 30 M",
        );
    }
    report.row(
        "(h) closing after the last commit: checkpoints, and a merge that is abandoned",
        format!("{:.1} s", closed.as_secs_f64()),
        String::new(),
        String::new(),
        "",
    );
}

fn batches() -> Vec<Vec<EncodedEvent>> {
    (0..STEP / BATCH).map(|_| (0..BATCH).map(|_| event()).collect()).collect()
}

/// Creates an event with a random UUID, of version 4.
fn event() -> EncodedEvent {
    let (high, low) = (SystemRandom.next_u64(), SystemRandom.next_u64());
    let id = format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xFFFF,
        high & 0xFFF,
        low >> 52,
        low & 0xFFFF_FFFF_FFFF
    );
    Event {
        id: EventId::new(&id).unwrap(),
        ts: Timestamp(1_700_000_000_000),
        topic: events::topic(0),
        key: None,
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from_static(b"{\"n\":1}")).unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
    .encode()
}
