//! Back-pressure from the checkpoint thread to the journal.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Counts the sealed WAL files that wait for their checkpoint, and blocks the journal while there
/// are too many.
#[derive(Debug, Default)]
pub(crate) struct PendingCheckpoints {
    count: Mutex<usize>,
    changed: Condvar,
}

impl PendingCheckpoints {
    pub(crate) fn add(&self) {
        *self.count.lock() += 1;
    }

    pub(crate) fn remove(&self) {
        *self.count.lock() -= 1;
        self.changed.notify_all();
    }

    /// Makes a waiting journal check again whether to give up.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits until fewer than `limit` checkpoints are pending, or `give_up` returns a reason.
    pub(crate) fn wait_below<E>(
        &self,
        limit: usize,
        give_up: impl Fn() -> Option<E>,
    ) -> Result<(), E> {
        // Long enough to cost nothing, short enough that a missed wake-up does not matter.
        const ROUND: Duration = Duration::from_millis(100);
        let mut count = self.count.lock();
        while *count >= limit {
            if let Some(reason) = give_up() {
                return Err(reason);
            }
            self.changed.wait_for(&mut count, ROUND);
        }
        Ok(())
    }
}
