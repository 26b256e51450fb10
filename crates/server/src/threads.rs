//! The threads that serve connections.
//!
//! Each thread has its own runtime and keeps its connections until they end. Work stealing would balance
//! the load better, but it wakes idle threads and moves connections between processors
//! (`docs/decisions/0013-the-publish-and-delivery-path.md`).

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{io, mem};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The threads that serve connections. The first is the one that runs everything else.
pub struct Threads {
    runtimes: Vec<ServingRuntime>,
    /// All threads but the first. Dropping its sender stops a thread.
    others: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

struct ServingRuntime {
    runtime: Handle,
    /// Cloned for each connection, to count them.
    connections: Arc<()>,
}

/// A connection's claim to a thread, which counts towards its load until it is dropped.
pub(crate) struct ThreadSlot {
    pub(crate) runtime: Handle,
    _connection: Arc<()>,
}

impl Threads {
    /// Returns the current thread, or the runtime it belongs to, as the only one.
    #[must_use]
    pub fn current_only() -> Self {
        Self { runtimes: vec![ServingRuntime::new(Handle::current())], others: Vec::new() }
    }

    /// Starts threads in addition to the current one, `count` in total.
    ///
    /// # Errors
    ///
    /// If a runtime or a thread cannot be created.
    pub fn start(count: usize) -> io::Result<Self> {
        let mut threads = Self::current_only();
        for _ in 1..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            threads.runtimes.push(ServingRuntime::new(runtime.handle().clone()));
            let (stop, stopped) = oneshot::channel::<()>();
            let run = move || {
                // Returns an error when the sender is dropped, which is the signal.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            };
            let thread = thread::Builder::new().name("prombus-serving".to_owned()).spawn(run)?;
            threads.others.push((stop, thread));
        }
        Ok(threads)
    }

    #[must_use]
    pub const fn count(&self) -> usize {
        self.runtimes.len()
    }

    /// Returns a slot on the thread with the fewest connections: the first of them if several are equal.
    pub(crate) fn least_loaded(&self) -> ThreadSlot {
        let least = self.runtimes.iter().min_by_key(|it| Arc::strong_count(&it.connections));
        let ServingRuntime { runtime, connections } = least.expect("there is at least one");
        ThreadSlot { runtime: runtime.clone(), _connection: Arc::clone(connections) }
    }
}

impl ServingRuntime {
    fn new(runtime: Handle) -> Self {
        Self { runtime, connections: Arc::new(()) }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for (stop, thread) in mem::take(&mut self.others) {
            drop(stop);
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    async fn thread_of(slot: &ThreadSlot) -> thread::ThreadId {
        slot.runtime.spawn(async { thread::current().id() }).await.unwrap()
    }

    #[tokio::test]
    async fn the_first_connection_stays_on_the_current_thread_and_more_are_spread() {
        let threads = Threads::start(3).unwrap();
        assert_eq!(threads.count(), 3);
        let here = thread::current().id();
        for _ in 0..3 {
            assert_eq!(
                thread_of(&threads.least_loaded()).await,
                here,
                "the previous slot is free again"
            );
        }
        let mut slots: Vec<_> = (0..6).map(|_| threads.least_loaded()).collect();
        let mut used = Vec::new();
        for slot in &slots {
            used.push(thread_of(slot).await);
        }
        assert_eq!(used[..3].iter().collect::<HashSet<_>>().len(), 3, "{used:?}");
        assert_eq!(used[..3], used[3..]);
        let free = used.remove(1);
        drop(slots.remove(1));
        assert_eq!(thread_of(&threads.least_loaded()).await, free);
    }

    #[tokio::test]
    async fn a_single_thread_serves_all_connections() {
        let threads = Threads::current_only();
        let slots: Vec<_> = (0..3).map(|_| threads.least_loaded()).collect();
        for slot in &slots {
            assert_eq!(thread_of(slot).await, thread::current().id());
        }
    }
}
