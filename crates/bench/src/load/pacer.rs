//! Wakes connections when an event is due.
//!
//! A thread of its own that sleeps: timers of the runtime are exact to a millisecond, in which an
//! open loop of 5,000 events a second has five of them due, and would charge the bus for the wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Load;
use crate::load::schedule::Schedule;

/// It looks this often whether it is still wanted.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Wakes connections in turn; until it is dropped.
#[derive(Debug)]
pub(crate) struct Pacer {
    connections: Vec<Arc<Notify>>,
    is_over: Arc<AtomicBool>,
}

impl Pacer {
    /// Begins to wake the connections of `load`, if it has a rate.
    pub(crate) fn start(load: &Load, began: Instant) -> Self {
        let connections: Vec<Arc<Notify>> = (0..load.connections).map(|_| Arc::default()).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        if load.rate.is_some() {
            let (schedule, batch, events) = (Schedule::of(load.rate), load.batch, load.events);
            let (connections, is_over) = (connections.clone(), Arc::clone(&is_over));
            thread::spawn(move || {
                let frames = events.div_ceil(batch);
                for (frame, connection) in (0..frames).zip(connections.iter().cycle()) {
                    let last = ((frame + 1) * batch).min(events) - 1;
                    let due = began + schedule.intended(last).unwrap_or_default();
                    while let Some(left) = due.checked_duration_since(Instant::now()) {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        thread::sleep(left.min(LONGEST_SLEEP));
                    }
                    connection.notify_one();
                }
            });
        }
        Self { connections, is_over }
    }

    /// What wakes the connection at `place`.
    pub(crate) fn of(&self, place: usize) -> Arc<Notify> {
        Arc::clone(&self.connections[place])
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
