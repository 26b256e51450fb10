//! Back-pressure from the checkpoint thread to the journal.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Counts the sealed WAL files that wait for their checkpoint, and blocks the journal while there
/// are too many.
#[derive(Debug, Default)]
pub(crate) struct PendingCheckpoints {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    files: usize,
    bytes: u64,
}

impl PendingCheckpoints {
    /// Adds a file with `bytes` of frames.
    pub(crate) fn add(&self, bytes: u64) {
        let mut waiting = self.waiting.lock();
        waiting.files += 1;
        waiting.bytes += bytes;
    }

    /// The reverse of [`PendingCheckpoints::add`].
    pub(crate) fn remove(&self, bytes: u64) {
        let mut waiting = self.waiting.lock();
        waiting.files -= 1;
        waiting.bytes -= bytes;
        drop(waiting);
        self.changed.notify_all();
    }

    /// Returns how many files wait, and their bytes.
    pub(crate) fn waiting(&self) -> (usize, u64) {
        let waiting = self.waiting.lock();
        (waiting.files, waiting.bytes)
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
        let mut waiting = self.waiting.lock();
        while waiting.files >= limit {
            if let Some(reason) = give_up() {
                return Err(reason);
            }
            self.changed.wait_for(&mut waiting, ROUND);
        }
        Ok(())
    }
}
