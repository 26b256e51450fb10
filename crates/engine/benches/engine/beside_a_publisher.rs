//! What somebody who publishes to another topic notices of some work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prombus_engine::{Batch, Durability, Engine};

use crate::events;

pub(crate) struct Beside {
    /// How long the work took.
    pub(crate) elapsed: Duration,
    /// Of the publisher's commits.
    pub(crate) p99: Duration,
    pub(crate) longest: Duration,
}

/// Publishes to one topic until it is stopped, and returns the latency of each commit.
async fn publish_until(
    engine: Arc<dyn Engine>,
    topic: usize,
    is_stopped: Arc<AtomicBool>,
) -> Vec<Duration> {
    let ids = events::ids();
    let mut latencies = Vec::new();
    while !is_stopped.load(Ordering::Relaxed) {
        let event = events::event(&ids, &events::topic(topic));
        let start = Instant::now();
        engine.commit(Batch::of_events(vec![event], Durability::Fsync)).await.unwrap();
        latencies.push(start.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    latencies
}

/// Runs `work` beside a publisher.
pub(crate) async fn beside_a_publisher(
    engine: &Arc<dyn Engine>,
    topic: usize,
    work: impl Future<Output = ()>,
) -> Beside {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let publisher = tokio::spawn(publish_until(Arc::clone(engine), topic, Arc::clone(&is_stopped)));
    let start = Instant::now();
    work.await;
    let elapsed = start.elapsed();
    is_stopped.store(true, Ordering::Relaxed);
    let mut latencies = publisher.await.unwrap();
    latencies.sort_unstable();
    let p99 = latencies[latencies.len() * 99 / 100];
    Beside { elapsed, p99, longest: *latencies.last().unwrap() }
}
