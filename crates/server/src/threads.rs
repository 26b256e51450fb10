//! The threads that serve connections.
//!
//! Each has a runtime of its own, and serves the connections it was given to their end. Threads that take work
//! from each other would share it more evenly, but also move a connection to another processor whenever one
//! has nothing to do, and wake it for that (`docs/decisions/0012-the-hot-path.md`).

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{io, mem};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The threads that serve connections, of which the first is the one that everything else runs on.
pub struct Threads {
    serving: Vec<Serving>,
    /// All but the first: dropping the sender ends one.
    others: Vec<(oneshot::Sender<()>, JoinHandle<()>)>,
}

struct Serving {
    runtime: Handle,
    connections: Arc<()>,
}

/// A place on a thread, counted while it is held.
pub(crate) struct Place {
    pub(crate) runtime: Handle,
    _connection: Arc<()>,
}

impl Threads {
    /// The one that asks, alone.
    #[must_use]
    pub fn only_this() -> Self {
        Self { serving: vec![Serving::on(Handle::current())], others: Vec::new() }
    }

    /// The one that asks, and as many more as there are `count` together.
    pub fn start(count: usize) -> io::Result<Self> {
        let mut threads = Self::only_this();
        for _ in 1..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            threads.serving.push(Serving::on(runtime.handle().clone()));
            let (end, ended) = oneshot::channel::<()>();
            let run = move || {
                // An error says that the sender is gone, which is what is waited for.
                let _ = runtime.block_on(ended);
                runtime.shutdown_background();
            };
            let thread = thread::Builder::new().name("prombus-serving".to_owned()).spawn(run)?;
            threads.others.push((end, thread));
        }
        Ok(threads)
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.serving.len()
    }

    /// A place on the thread that has the fewest connections, the first of them.
    pub(crate) fn place(&self) -> Place {
        let fewest = self.serving.iter().min_by_key(|one| Arc::strong_count(&one.connections));
        let Serving { runtime, connections } = fewest.expect("there is one at least");
        Place { runtime: runtime.clone(), _connection: Arc::clone(connections) }
    }
}

impl Serving {
    fn on(runtime: Handle) -> Self {
        Self { runtime, connections: Arc::new(()) }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for (end, thread) in mem::take(&mut self.others) {
            drop(end);
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    async fn thread_of(place: &Place) -> thread::ThreadId {
        place.runtime.spawn(async { thread::current().id() }).await.unwrap()
    }

    #[tokio::test]
    async fn one_connection_is_where_everything_else_is_and_more_are_spread() {
        let threads = Threads::start(3).unwrap();
        assert_eq!(threads.count(), 3);
        let here = thread::current().id();
        for _ in 0..3 {
            assert_eq!(thread_of(&threads.place()).await, here, "the place before is free again");
        }
        let mut places: Vec<_> = (0..6).map(|_| threads.place()).collect();
        let mut used = Vec::new();
        for place in &places {
            used.push(thread_of(place).await);
        }
        assert_eq!(used[..3].iter().collect::<HashSet<_>>().len(), 3, "{used:?}");
        assert_eq!(used[..3], used[3..]);
        let free = used.remove(1);
        drop(places.remove(1));
        assert_eq!(thread_of(&threads.place()).await, free);
    }

    #[tokio::test]
    async fn one_alone_needs_no_others() {
        let threads = Threads::only_this();
        let places: Vec<_> = (0..3).map(|_| threads.place()).collect();
        for place in &places {
            assert_eq!(thread_of(place).await, thread::current().id());
        }
    }
}
