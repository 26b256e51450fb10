//! Wakes connections when an event is due.
//!
//! It sleeps in a thread of its own. The runtime's timers have a resolution of a millisecond, in
//! which five events are due at 5,000 events per second, and their wait would count as latency of
//! the bus.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Load;
use crate::load::schedule::Schedule;

/// How long it takes at most to notice that the pacer was dropped.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Wakes connections in turn until it is dropped.
#[derive(Debug)]
pub(crate) struct Pacer {
    connections: Vec<Arc<Notify>>,
    is_dropped: Arc<AtomicBool>,
}

impl Pacer {
    /// Starts to wake the connections of `load` if it has a rate.
    pub(crate) fn start(load: &Load, started: Instant) -> Self {
        let connections: Vec<Arc<Notify>> = (0..load.connections).map(|_| Arc::default()).collect();
        let is_dropped = Arc::new(AtomicBool::new(false));
        if load.rate.is_some() {
            let (schedule, batch, events) = (Schedule::of(load.rate), load.batch, load.events);
            let (connections, is_dropped) = (connections.clone(), Arc::clone(&is_dropped));
            thread::spawn(move || {
                let frames = events.div_ceil(batch);
                for (frame, connection) in (0..frames).zip(connections.iter().cycle()) {
                    let last = ((frame + 1) * batch).min(events) - 1;
                    let due = started + schedule.time_of(last).unwrap_or_default();
                    while let Some(left) = due.checked_duration_since(Instant::now()) {
                        if is_dropped.load(Ordering::Relaxed) {
                            return;
                        }
                        thread::sleep(left.min(LONGEST_SLEEP));
                    }
                    connection.notify_one();
                }
            });
        }
        Self { connections, is_dropped }
    }

    /// Returns the wake-up signal of the connection with this index.
    pub(crate) fn notify(&self, index: usize) -> Arc<Notify> {
        Arc::clone(&self.connections[index])
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
    }
}
