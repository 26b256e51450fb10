//! How many full log files wait to be moved into segments.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lets the journal wait while too many log files do.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: Mutex<usize>,
    changed: Condvar,
}

impl Backlog {
    pub(crate) fn add(&self) {
        *self.lock() += 1;
    }

    pub(crate) fn remove(&self) {
        *self.lock() -= 1;
        self.changed.notify_all();
    }

    /// Something happened that may make waiting pointless.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits until fewer than `limit` files wait, or until `gives_up` answers something.
    pub(crate) fn wait_below<E>(
        &self,
        limit: usize,
        gives_up: impl Fn() -> Option<E>,
    ) -> Result<(), E> {
        // Long enough to cost nothing, short enough that no missed wake-up matters.
        const ROUND: Duration = Duration::from_millis(100);
        let mut waiting = self.lock();
        while *waiting >= limit {
            if let Some(reason) = gives_up() {
                return Err(reason);
            }
            let woken = self.changed.wait_timeout(waiting, ROUND);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
