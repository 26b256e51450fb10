//! Checkpoints: a sealed WAL file becomes segments, an id run and a state run. All of it is durable
//! before the catalog names it, and the catalog is durable before the WAL file is removed.
//!
//! One thread does this and nothing else. After a crash the checkpoint is repeated from the WAL file
//! and writes to the same offsets.

pub(crate) mod catalog;
mod merging;
pub(crate) mod pending;
mod rebuild_ids;
pub(crate) mod sealed_wal;
mod wal_checkpoint;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use prombus_proto::Topic;
use tokio::sync::oneshot;

use self::catalog::Catalog;
use self::sealed_wal::SealedWal;
use super::shared::Shared;
use super::storage::faults::is_storage_full;
use crate::Condition;

/// A task for the checkpoint thread. Tasks run in order.
pub(crate) enum CheckpointTask {
    Checkpoint(SealedWal),
    /// A trim is durable: removes the topic's segments before its first event.
    Reclaim(Topic),
    /// Makes the last assigned version durable and ends the thread.
    Stop {
        last_version: u64,
        done: oneshot::Sender<()>,
    },
}

/// The scheduling priority of the thread: commits come first.
const NICENESS: i32 = 10;
/// How long to wait before a full disk is tried again.
const RETRY: Duration = Duration::from_millis(250);

/// The checkpoint thread.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    catalog: Catalog,
    tasks: Receiver<CheckpointTask>,
    /// The disk was full while the engine was closed: the rest stays in the write-ahead log.
    gave_up: bool,
}

impl Checkpointer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        catalog: Catalog,
    ) -> (mpsc::Sender<CheckpointTask>, Self) {
        let (sender, tasks) = mpsc::channel();
        (sender, Self { shared, catalog, tasks, gave_up: false })
    }

    /// Runs until it is stopped or every sender is dropped.
    pub(crate) fn run(mut self) {
        // On Linux this affects only the calling thread. Commits wait for it anyway once too many
        // sealed files are pending. An error is harmless.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        loop {
            match self.tasks.recv_timeout(Duration::from_secs(1)) {
                Ok(CheckpointTask::Checkpoint(sealed)) => {
                    self.until_done(|this| this.checkpoint(&sealed));
                    self.shared.pending_checkpoints.remove();
                    self.until_done(Self::merge_due_runs);
                }
                Ok(CheckpointTask::Reclaim(topic)) => self.until_done(|this| this.reclaim(&topic)),
                Ok(CheckpointTask::Stop { last_version, done }) => {
                    self.until_done(|this| this.persist_last_version(last_version));
                    // The receiver may have been dropped.
                    let _ = done.send(());
                    return;
                }
                // State expires even if nothing is written.
                Err(RecvTimeoutError::Timeout) => self.until_done(Self::merge_due_runs),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.shared.id_rebuild_requested.swap(false, Ordering::SeqCst) {
                self.until_done(Self::rebuild_ids);
            }
        }
    }

    /// Retries `step` until it succeeds. Waits while the disk is full, unless the engine is being
    /// closed. Any other error poisons the engine, and the WAL files stay for the restart.
    fn until_done(&mut self, mut step: impl FnMut(&mut Self) -> io::Result<()>) {
        let mut waited = false;
        // A poisoned journal closes without waiting for this thread, so closed ends it as well.
        let over = |condition| matches!(condition, Condition::Poisoned(_) | Condition::Closed);
        while !self.gave_up && !over(self.shared.condition()) {
            match step(self) {
                Ok(()) => {
                    if waited {
                        self.shared.set_condition(Condition::Healthy);
                    }
                    return;
                }
                Err(error) if is_storage_full(&error) => {
                    waited = true;
                    self.gave_up = self.shared.closing.load(Ordering::SeqCst);
                    self.shared.set_condition(Condition::Full(error.to_string()));
                    self.shared.pending_checkpoints.wake();
                    std::thread::sleep(RETRY);
                }
                Err(error) => {
                    let reason = format!("a checkpoint failed: {error}");
                    self.shared.set_condition(Condition::Poisoned(reason));
                    self.shared.pending_checkpoints.wake();
                }
            }
        }
    }

    fn persist_last_version(&mut self, last_version: u64) -> io::Result<()> {
        if last_version == self.catalog.last_version {
            return Ok(());
        }
        self.replace_catalog(Catalog { last_version, ..self.catalog.clone() })
    }

    fn reclaim(&mut self, topic: &Topic) -> io::Result<()> {
        let Some(first) = self.shared.view().topics.get(topic).map(|view| view.first) else {
            return Ok(());
        };
        let mut catalog = self.catalog.clone();
        let Some(row) = catalog.topics.get_mut(topic) else {
            return Ok(());
        };
        row.first = row.first.max(first.min(row.next));
        let dropped = catalog.drop_trimmed(&self.shared.layout, std::iter::once(topic));
        if dropped.is_empty() {
            return Ok(());
        }
        self.replace_catalog(catalog)?;
        self.remove_files(&dropped);
        Ok(())
    }

    /// Durably replaces the catalog.
    fn replace_catalog(&mut self, mut catalog: Catalog) -> io::Result<()> {
        catalog.checkpoint += 1;
        catalog.store(&self.shared.layout)?;
        self.catalog = catalog;
        Ok(())
    }

    /// Deletes files that the catalog no longer names. A file that cannot be deleted only takes
    /// space.
    fn remove_files(&self, paths: &[PathBuf]) {
        for path in paths {
            self.shared.file_cache.forget(path);
            let _ = fs::remove_file(path);
        }
    }
}
