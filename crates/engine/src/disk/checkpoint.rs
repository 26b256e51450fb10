//! Checkpoints: a sealed WAL file becomes segments, an id run and a state run. All of it is durable
//! before the catalog names it, and the catalog is durable before the WAL file is removed.
//!
//! One thread does this, and it alone changes the catalog. Merges of sorted runs take long, so another
//! thread writes them ([`run_task`]). After a crash the checkpoint is repeated from the WAL file and
//! writes to the same offsets.

mod backoff;
pub(crate) mod catalog;
mod merging;
mod pack_usage;
mod packing;
pub(crate) mod pending;
mod rebuild_ids;
pub(crate) mod run_task;
pub(crate) mod sealed_wal;
mod sweep;
mod wal_checkpoint;
mod writing_topics;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use prombus_proto::{Seq, Topic};
use tokio::sync::oneshot;

use self::catalog::Catalog;
use self::catalog::edit::CatalogEdit;
use self::catalog::files::{CatalogFiles, StoredCatalog};
use self::pack_usage::PackUsage;
use self::run_task::RunTasks;
use self::sealed_wal::SealedWal;
use self::sweep::Sweep;
use super::backup::pins::{Pin, TooManyPins};
use super::shared::Shared;
use super::storage::faults::is_temporary;
use super::storage::file_system::OpenFolder;
use super::storage::reserve;
use crate::Condition;

/// A task for the checkpoint thread.
pub(crate) enum CheckpointTask {
    /// Moves a sealed WAL file into segments and runs. Files are moved in order.
    Checkpoint(SealedWal),
    /// A trim is durable: removes the topic's segments before its first event.
    Reclaim(Topic),
    /// Keeps all files of this moment in existence for a backup.
    Pin(oneshot::Sender<Result<Pin, TooManyPins>>),
    /// Makes the last assigned version durable and ends the thread, after all other tasks.
    Stop(StopRequest),
}

pub(crate) struct StopRequest {
    pub(crate) last_version: u64,
    pub(crate) done: oneshot::Sender<()>,
}

/// How far [`Checkpointer::work`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing is left to do.
    Idle,
    /// Storage refused for now: the rest has to be tried again.
    Waiting,
    /// The thread ends.
    Stopped,
}

/// The scheduling priority of the thread: commits come first.
const NICENESS: i32 = 10;
/// The space set aside for trims, as a part of a WAL file: enough for many of them.
const RESERVES_PER_WAL: u64 = 64;
const MIN_RESERVE_BYTES: u64 = 4 << 10;
/// How long to wait before storage that refused is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How often to look for expired state if nothing is written.
const IDLE: Duration = Duration::from_secs(1);
/// How often to look whether a merge is finished.
const MERGING: Duration = Duration::from_millis(20);

/// The checkpoint thread.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    /// Open from the start, so that a sync of the filesystem reports every error since then.
    root: OpenFolder,
    catalog: Catalog,
    catalog_files: CatalogFiles,
    packs: PackUsage,
    tasks: Receiver<CheckpointTask>,
    sealed: VecDeque<SealedWal>,
    trimmed: BTreeSet<Topic>,
    stop: Option<StopRequest>,
    /// Whether storage refused at the last attempt.
    is_waiting: bool,
    sweep: Sweep,
    run_tasks: RunTasks,
}

impl Checkpointer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        catalog: StoredCatalog,
    ) -> io::Result<(mpsc::Sender<CheckpointTask>, Self)> {
        let root = shared.layout.fs().open_folder(shared.layout.root())?;
        let (sender, tasks) = mpsc::channel();
        let StoredCatalog { catalog, files } = catalog;
        let sealed = VecDeque::new();
        let trimmed = trimmed_before(&shared, &catalog);
        let packs = PackUsage::of(&shared.layout, &catalog);
        shared.meter.set_segment_bytes(packs.unpacked_bytes());
        let checkpointer = Self {
            shared,
            root,
            packs,
            catalog,
            catalog_files: files,
            tasks,
            sealed,
            trimmed,
            stop: None,
            is_waiting: false,
            sweep: Sweep::Everything,
            run_tasks: RunTasks::without_thread(),
        };
        Ok((sender, checkpointer))
    }

    /// Runs until it is stopped or every sender is dropped.
    pub(crate) fn run(mut self) {
        // On Linux this affects only the calling thread. Commits wait for it anyway once too many
        // sealed files are pending. An error is harmless.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        self.run_tasks.use_thread = true;
        let mut progress = self.work();
        while progress != Progress::Stopped {
            let wait = match progress {
                _ if self.run_tasks.is_running() => MERGING,
                Progress::Idle => IDLE,
                _ => RETRY,
            };
            match self.tasks.recv_timeout(wait) {
                Ok(task) => self.accept(task),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            progress = self.work();
        }
    }

    fn accept(&mut self, task: CheckpointTask) {
        match task {
            CheckpointTask::Checkpoint(sealed) => self.sealed.push_back(sealed),
            CheckpointTask::Reclaim(topic) => {
                self.trimmed.insert(topic);
            }
            CheckpointTask::Pin(reply) => {
                // The catalog must not name what is removed already.
                self.reclaim_trimmed();
                // The receiver may have been dropped, and with it the pin.
                drop(reply.send(Pin::take(&self.shared, &self.catalog)));
            }
            CheckpointTask::Stop(stop) => self.stop = Some(stop),
        }
    }

    /// Does all that waits. An error that is not temporary poisons the engine, and the WAL files stay
    /// for the restart.
    pub(crate) fn work(&mut self) -> Progress {
        // A poisoned journal closes without waiting for this thread, so closed ends it as well.
        let is_over = |condition| matches!(condition, Condition::Poisoned(_) | Condition::Closed);
        let result =
            if is_over(self.shared.condition()) { Ok(()) } else { self.do_waiting_tasks() };
        match result {
            Ok(()) => {
                if mem::take(&mut self.is_waiting) {
                    self.shared.set_condition(Condition::Healthy);
                }
            }
            Err(error) if is_temporary(&error) => {
                self.is_waiting = true;
                self.shared.set_condition(Condition::Full(error.to_string()));
                self.shared.pending_checkpoints.wake();
                // While the engine is being closed, the rest stays in the write-ahead log.
                if !self.shared.closing.load(Ordering::SeqCst) {
                    return Progress::Waiting;
                }
            }
            Err(error) => {
                let reason = format!("a checkpoint failed: {error}");
                self.shared.set_condition(Condition::Poisoned(reason));
                self.shared.pending_checkpoints.wake();
            }
        }
        match self.stop.take() {
            None => Progress::Idle,
            Some(stop) => {
                // The receiver may have been dropped.
                let _ = stop.done.send(());
                Progress::Stopped
            }
        }
    }

    fn do_waiting_tasks(&mut self) -> io::Result<()> {
        loop {
            while let Ok(task) = self.tasks.try_recv() {
                self.accept(task);
            }
            // Frees space, so it comes before whatever needs some.
            self.reclaim_trimmed();
            let Some(sealed) = self.sealed.pop_front() else { break };
            let started = Instant::now();
            if let Err(error) = self.checkpoint(&sealed) {
                self.sealed.push_front(sealed);
                return Err(error);
            }
            self.shared.meter.checkpointed_in(started.elapsed());
            self.shared.pending_checkpoints.remove(sealed.end);
            self.finish_run_task()?;
            self.start_run_task();
        }
        match &self.stop {
            Some(stop) => {
                let last_version = stop.last_version;
                self.run_tasks.abandon();
                self.persist_last_version(last_version)?;
            }
            None => {
                self.finish_run_task()?;
                self.sweep();
                // State expires even if nothing is written.
                self.start_run_task();
                let bytes = self.shared.options.wal_file_bytes / RESERVES_PER_WAL;
                let bytes = bytes.max(MIN_RESERVE_BYTES);
                reserve::set_aside(&self.shared.layout, bytes);
            }
        }
        Ok(())
    }

    fn persist_last_version(&mut self, last_version: u64) -> io::Result<()> {
        if last_version == self.catalog.last_version {
            return Ok(());
        }
        self.change_catalog(CatalogEdit { last_version, ..self.catalog.edit() }).map(drop)
    }

    /// Removes the segments of trimmed topics. Needs no space: the trims are durable in the
    /// write-ahead log, and the next checkpoint records them in the catalog.
    fn reclaim_trimmed(&mut self) {
        for topic in mem::take(&mut self.trimmed) {
            let Some(first) = self.shared.view().topics.get(&topic).map(|view| view.first) else {
                continue;
            };
            if let Some(row) = self.catalog.topics.get_mut(&topic) {
                row.first = row.first.max(first.min(row.next));
                self.packs.remove(&row.segments);
                let dropped = row.drop_trimmed(&self.shared.layout, &topic);
                self.packs.add(&row.segments);
                self.remove_files(&dropped);
            }
        }
        self.shared.meter.set_segment_bytes(self.packs.unpacked_bytes());
        self.remove_unused_packs();
    }

    /// Durably changes the catalog. Returns the topics that changed.
    fn change_catalog(&mut self, edit: CatalogEdit) -> io::Result<Vec<Topic>> {
        let (layout, options) = (&self.shared.layout, &self.shared.options);
        self.catalog_files.append(layout, &self.catalog, &edit)?;
        let changed: Vec<_> = edit.topics.keys().cloned().collect();
        for topic in edit.removed.iter().chain(&changed) {
            self.packs.remove(self.catalog.segments(topic));
        }
        self.catalog.apply(edit);
        for topic in &changed {
            self.packs.add(self.catalog.segments(topic));
        }
        self.shared.meter.set_segment_bytes(self.packs.unpacked_bytes());
        self.catalog_files.shorten(layout, &self.catalog, options.catalog_edits)?;
        Ok(changed)
    }

    /// Removes the folder of a topic that has no segments, unless something else is in it.
    fn remove_folder(&self, topic: &Topic) {
        // Most topics with few events never had one.
        let _ = self.shared.layout.fs().remove_folder(&self.shared.layout.topic(topic));
    }

    fn remove_unused_packs(&mut self) {
        let unused = self.packs.take_unused();
        let paths: Vec<_> = unused.iter().map(|pack| self.shared.layout.pack(*pack)).collect();
        self.remove_files(&paths);
    }

    /// Deletes files that the catalog no longer names, once no backup needs them. A file that cannot be
    /// deleted only takes space, until the next start sweeps it.
    fn remove_files(&self, paths: &[PathBuf]) {
        for path in paths {
            let _ = self.shared.pins.remove_file(&self.shared.layout, path);
            // After it is gone: a reader that opened it in between would keep it, and its space, in the cache, and
            // a topic that follows a deleted one may use the path again.
            self.shared.file_cache.forget(path);
        }
    }
}

impl Drop for Checkpointer {
    /// After a panic, nobody checkpoints any more, and commits must not wait for it.
    fn drop(&mut self) {
        if thread::panicking() {
            let reason = "the checkpoint thread panicked; see the log".to_owned();
            self.shared.set_condition(Condition::Poisoned(reason));
            self.shared.pending_checkpoints.wake();
        }
    }
}

/// Returns the topics of which the write-ahead log has trimmed more than the catalog says. Their files may be
/// removed already: that does not wait for a catalog.
fn trimmed_before(shared: &Shared, catalog: &Catalog) -> BTreeSet<Topic> {
    let view = shared.view();
    let is_behind = |topic: &Topic, first: Seq| {
        view.topics.get(topic).is_some_and(|in_use| in_use.first > first)
    };
    let behind = catalog.topics.iter().filter(|(topic, row)| is_behind(topic, row.first));
    behind.map(|(topic, _)| topic.clone()).collect()
}
