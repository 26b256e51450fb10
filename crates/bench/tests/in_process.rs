//! Small runs on a bus in this process.

use std::sync::Arc;

use prombus_bench::{
    InProcess, Load, Summary, Tally, Target, bench_backlog, bench_publish, bench_subscribe,
};
use prombus_bus::Durability;
use prombus_engine::{DiskEngine, DiskOptions, Engine, MemoryEngine};
use prombus_proto::SystemClock;

fn on_memory(load: &Load) -> Target {
    let engine = Arc::new(MemoryEngine::new(Arc::new(SystemClock)));
    Target::InProcess(InProcess::start(engine, load, Durability::Fsync).expect("a bus"))
}

fn load(events: u64) -> Load {
    Load { events, ..Load::default() }
}

#[track_caller]
fn assert_rising(latency: &Summary) {
    let Summary { p50, p90, p99, p999, max, avg } = *latency;
    assert!(p50 <= p90 && p90 <= p99 && p99 <= p999 && p999 <= max, "{latency:?}");
    assert!(max > 0.0 && avg > 0.0 && avg <= max, "{latency:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_every_event_once_in_the_requested_size() {
    for load in [
        load(2000),
        Load { batch: 7, ..load(1000) },
        Load { connections: 3, topics: 4, window: 5, ..load(500) },
        Load { size: 4096, rate: Some(20_000.0), ..load(300) },
    ] {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new(Arc::new(SystemClock)));
        let bus = InProcess::start(Arc::clone(&engine), &load, Durability::Fsync).unwrap();
        let tally = Arc::new(Tally::default());
        let report = bench_publish(&Target::InProcess(bus), &load, &tally).await.unwrap();
        assert_eq!(report.published, load.events);
        assert_eq!(report.figures.bytes, load.bytes());
        assert_eq!(tally.progress().events, load.events);
        assert_rising(&report.figures.latency);
        let (mut events, mut bytes) = (0, 0);
        for topic in load.topics().unwrap() {
            let bounds = engine.bounds(&topic).await.unwrap();
            events += bounds.count();
            bytes += bounds.bytes;
        }
        assert_eq!(events, load.events);
        // Offsets here have fewer than seven digits.
        let least = load.bytes() - 6 * load.events;
        assert!((least..=load.bytes()).contains(&bytes), "{bytes} of {}", load.bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delivers_and_acknowledges_every_event() {
    for load in [
        load(2000),
        Load { batch: 10, connections: 2, topics: 3, ..load(1000) },
        Load { connections: 3, topics: 1, window: 4, ..load(500) },
        Load { rate: Some(10_000.0), ..load(500) },
        Load { groups: 3, connections: 2, topics: 3, ..load(500) },
    ] {
        let target = on_memory(&load);
        let report = bench_subscribe(&target, &load, &Arc::default()).await.unwrap();
        assert_eq!(report.n, load.deliveries());
        assert_rising(&report.figures.latency);
        // Again on the same bus: events of the first run do not count.
        let report = bench_subscribe(&target, &load, &Arc::default()).await.unwrap();
        assert_eq!(report.n, load.deliveries());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consumes_the_backlog_and_nothing_else() {
    for load in [load(3000), Load { connections: 2, topics: 3, groups: 2, ..load(1000) }] {
        let target = on_memory(&load);
        for _ in 0..2 {
            let report = bench_backlog(&target, &load, &Arc::default()).await.unwrap();
            assert_eq!((report.n, report.figures.late), (load.deliveries(), 0));
            assert_rising(&report.figures.latency);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_events_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let load = load(500);
    let engine = Arc::new(DiskEngine::open(&DiskOptions::at(folder.path())).unwrap());
    let bus = InProcess::start(engine, &load, Durability::Buffered).unwrap();
    let target = Target::InProcess(bus);
    bench_subscribe(&target, &load, &Arc::default()).await.unwrap();
    let Target::InProcess(bus) = target else { unreachable!() };
    bus.close().await.unwrap();
    drop(bus);
    let engine = DiskEngine::open(&DiskOptions::at(folder.path())).unwrap();
    let bounds = engine.bounds(&load.topics().unwrap()[0]).await.unwrap();
    assert_eq!(bounds.count(), 500);
}

#[tokio::test]
async fn rejects_an_invalid_load() {
    for (load, name) in [
        (load(0), "--n"),
        (Load { size: 20, ..load(1) }, "--size"),
        (Load { batch: 5000, ..load(1) }, "--batch"),
    ] {
        let error = bench_publish(&on_memory(&load), &load, &Arc::default()).await.unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    }
}
