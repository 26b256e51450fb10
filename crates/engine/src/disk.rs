//! The disk engine: a write-ahead log, topic segments behind it, and keyed state beside them.
//!
//! **Write path.** [`Engine::commit`] hands a batch to the `journal`, one thread that gathers the
//! waiting commits, assigns positions, writes them to the `wal` as one frame, syncs once, publishes
//! the frame to readers and answers the commits.
//!
//! **Checkpoint.** When a WAL file is full, the `checkpoint` thread copies its records into the
//! topics' segments (`segment`), its ids and state changes into sorted runs (`ids`, `state`),
//! makes all of it durable, writes the catalog and removes the WAL file. Sorted runs are merged on a
//! thread of their own.
//!
//! **Read path.** Readers (`read`) look up in the view where events are, release it and read the
//! files.
//!
//! **Backup.** [`backup`] copies the files of one moment while all of this goes on; `verify` checks the files
//! of a store or of a backup.
//!
//! **Recovery.** `recovery` loads the catalog and replays the WAL files that it does not cover.
//!
//! The formats of all files are in `docs/disk-format.md`.

pub mod backup;
mod checkpoint;
mod ids;
mod journal;
mod meter;
mod options;
mod read;
mod record;
mod recovery;
mod segment;
mod shared;
#[cfg(test)]
mod simulation;
mod sorted_runs;
mod state;
mod storage;
mod verify;
mod wal;

use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

pub use self::options::DiskOptions;
pub use self::storage::faults::StorageFaults;
pub use self::verify::report::{Fault, FileKindName, KindTotals, Report};
pub use self::verify::store::{VerifyError, verify_store};

use self::backup::pins::Pin;
use self::backup::{Backup, BackupError, OnDamage};
use self::checkpoint::{CheckpointTask, Checkpointer};
use self::journal::{Journal, Request};
use self::record::SuffixChecksum;
use self::recovery::Recovered;
use self::shared::Shared;
use self::storage::layout::Layout;
use self::storage::lock::StoreLock;
use self::storage::private::close_to_others;
use crate::{
    Arrival, Batch, Bounds, Capabilities, CommitError, Committed, Condition, Durability, Engine,
    Figures, Health, OpenError, Page, ReadBudget, ReadError, Retention, StateEntry, StateKey,
    Unavailable,
};

/// How many requests may wait for the journal before senders block.
const REQUEST_QUEUE: usize = 8192;

/// Stores events and state in a folder, which one process at a time can open.
pub struct DiskEngine {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    workers: Mutex<Option<Workers>>,
}

/// The threads, and the lock on the folder.
struct Workers {
    journal: JoinHandle<()>,
    checkpointer: JoinHandle<()>,
    checkpoints: std_mpsc::Sender<CheckpointTask>,
    lock: StoreLock,
}

impl DiskEngine {
    /// Opens the store in the folder, or creates one. [`Engine::health`] lists what was found damaged
    /// or repaired.
    ///
    /// # Errors
    ///
    /// If another process has the store open, if its catalog is unreadable, if a file has a newer
    /// format version, or if the operating system reports an error.
    pub fn open(options: &DiskOptions) -> Result<Self, OpenError> {
        let layout = Layout::new(options.folder.clone());
        let io = |source| OpenError::Io { path: options.folder.clone(), source };
        let lock = StoreLock::acquire(&layout)?;
        close_to_others(&layout);
        let Recovered { shared, catalog, sealed, start } = recovery::recover(options, layout)?;
        let shared = Arc::new(shared);
        let (tasks, checkpointer) = Checkpointer::new(Arc::clone(&shared), catalog).map_err(io)?;
        for wal in sealed {
            shared.pending_checkpoints.add(wal.end);
            tasks.send(CheckpointTask::Checkpoint(wal)).expect("the receiver is still owned here");
        }
        let (requests, receiver) = mpsc::channel(REQUEST_QUEUE);
        let journal = Journal::new(Arc::clone(&shared), receiver, tasks.clone(), &start);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(run).map_err(io)
        };
        let workers = Workers {
            // First: without the other thread it ends at once, while a lone checkpointer would still
            // change the store after it is unlocked.
            journal: spawn("prombus-journal", Box::new(|| journal.run()))?,
            checkpointer: spawn("prombus-checkpoint", Box::new(|| checkpointer.run()))?,
            checkpoints: tasks,
            lock,
        };
        Ok(Self { shared, requests, workers: Mutex::new(Some(workers)) })
    }

    /// Sends a request to the journal and waits for the answer.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, CommitError> {
        let (reply, answer) = oneshot::channel();
        let closed = || CommitError::Unavailable(Unavailable::Closed);
        // Usually the queue has room, and nothing has to wait.
        if let Err(refused) = self.requests.try_send(request(reply)) {
            match refused {
                TrySendError::Full(request) => {
                    self.requests.send(request).await.map_err(|_| closed())?;
                }
                TrySendError::Closed(_) => return Err(closed()),
            }
        }
        answer.await.map_err(|_| closed())
    }

    fn check_open(&self) -> Result<(), Unavailable> {
        match self.shared.condition() {
            Condition::Closed => Err(Unavailable::Closed),
            Condition::Healthy | Condition::Full(_) | Condition::Poisoned(_) => Ok(()),
        }
    }

    /// Runs `work`, which may wait for the disk, on the blocking thread pool.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        self.check_open()?;
        let shared = Arc::clone(&self.shared);
        match tokio::task::spawn_blocking(move || work(&shared)).await {
            Ok(result) => result,
            Err(_) => Err(Unavailable::Closed.into()),
        }
    }

    /// Waits for the threads and unlocks the folder.
    fn join(shared: &Shared, workers: Workers) {
        let Workers { journal, checkpointer, checkpoints, lock } = workers;
        // The panic hook has already reported a panic.
        let _ = journal.join();
        // Without senders the checkpoint thread ends, whatever became of the journal.
        drop(checkpoints);
        let _ = checkpointer.join();
        shared.pins.close();
        lock.release();
    }

    /// Keeps the files of this moment in existence.
    async fn pin(&self) -> Result<Pin, BackupError> {
        match self.shared.condition() {
            Condition::Closed => return Err(Unavailable::Closed.into()),
            // Nobody knows what of the last frames is stored.
            Condition::Poisoned(reason) => return Err(Unavailable::Poisoned(reason).into()),
            Condition::Healthy | Condition::Full(_) => {}
        }
        let (reply, pinned) = oneshot::channel();
        let task = CheckpointTask::Pin(reply);
        let is_sent = match self.workers.lock().as_ref() {
            Some(workers) => workers.checkpoints.send(task).is_ok(),
            None => false,
        };
        let pinned = if is_sent { pinned.await.ok() } else { None };
        Ok(pinned.ok_or(Unavailable::Closed)??)
    }

    fn take_running(&self) -> Option<Workers> {
        self.workers.lock().take()
    }
}

#[async_trait]
impl Engine for DiskEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            atomic_across_topics: true,
            several_gateways: false,
            gathers_commits: true,
            survives_restart: true,
            max_durability: Durability::Fsync,
        }
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        // Here rather than in the journal, which is a single thread.
        let bytes = batch.check_sizes()?;
        let suffix_checksums = batch.events.iter().map(SuffixChecksum::of).collect();
        let commit = |reply| Request::Commit { batch, bytes, suffix_checksums, reply };
        let (answer, _batch) = self.ask(commit).await?;
        answer
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        self.check_open()?;
        if read::events::is_recent(&self.shared, topic, from) {
            return read::events::read(&self.shared, topic, from, budget);
        }
        let topic = topic.clone();
        self.blocking(move |shared| read::events::read(shared, &topic, from, budget)).await
    }

    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        self.check_open()?;
        let view = self.shared.view();
        Ok(view.topics.get(topic).map_or(Bounds::EMPTY, |view| view.bounds()))
    }

    async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        self.check_open()?;
        let view = self.shared.view();
        // A retention rule alone does not create a topic.
        let topics = view.topics.iter().filter(|(_, view)| view.bounds().next > Seq::FIRST);
        let mut topics: Vec<_> = topics.map(|(topic, _)| topic.clone()).collect();
        topics.sort_unstable();
        Ok(topics)
    }

    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        let topic = topic.clone();
        self.blocking(move |shared| read::seek_time::seek_time(shared, &topic, ts)).await
    }

    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
        let (topic, id) = (topic.clone(), id.clone());
        self.blocking(move |shared| read::seek_id::seek_id(shared, &topic, &id)).await
    }

    async fn seek_ids(
        &self,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<Vec<Option<Seq>>, ReadError> {
        let (topic, ids) = (topic.clone(), ids.to_vec());
        let seek = move |shared: &Shared| {
            ids.iter().map(|id| read::seek_id::seek_id(shared, &topic, id)).collect()
        };
        self.blocking(seek).await
    }

    async fn arrival(&self, topic: &Topic, seq: Seq) -> Result<Option<Arrival>, ReadError> {
        self.check_open()?;
        Ok(read::arrival::arrival(&self.shared, topic, seq))
    }

    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        let topic = topic.clone();
        self.ask(|reply| Request::Trim { topic, below, reply }).await?
    }

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        let (topic, rule) = (topic.clone(), *rule);
        self.ask(|reply| Request::Retain { topic, rule, reply }).await?
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        self.check_open()?;
        if let Some(entry) = read::state::get_recent(&self.shared, key) {
            return Ok(entry);
        }
        let key = key.clone();
        self.blocking(move |shared| read::state::get(shared, &key)).await
    }

    async fn get_many(&self, keys: &[StateKey]) -> Result<Vec<Option<StateEntry>>, ReadError> {
        let keys = keys.to_vec();
        self.blocking(move |shared| keys.iter().map(|key| read::state::get(shared, key)).collect())
            .await
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        let (prefix, after) = (prefix.to_vec(), after.cloned());
        self.blocking(move |shared| read::state::scan(shared, &prefix, after.as_ref(), limit)).await
    }

    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        self.shared.watch(topic)
    }

    async fn backup(&self, on_damage: OnDamage) -> Result<Backup, BackupError> {
        let pin = self.pin().await?;
        // Reads the lengths of some files.
        let started = tokio::task::spawn_blocking(move || Backup::start(pin, on_damage)).await;
        started.unwrap_or_else(|_| Err(Unavailable::Closed.into()))
    }

    fn health(&self) -> Health {
        Health { condition: self.shared.condition(), incidents: self.shared.incidents() }
    }

    async fn figures(&self) -> Figures {
        let shared = Arc::clone(&self.shared);
        // It looks at files.
        tokio::task::spawn_blocking(move || meter::figures(&shared)).await.unwrap_or_default()
    }

    async fn close(&self) -> Result<(), CommitError> {
        let result = match self.ask(|reply| Request::Close { reply }).await {
            Ok(result) => result,
            // It was closed before.
            Err(_) => Ok(()),
        };
        if let Some(workers) = self.take_running() {
            // The threads end right after their answer. The folder is unlocked when this returns.
            let shared = Arc::clone(&self.shared);
            let _ = tokio::task::spawn_blocking(move || Self::join(&shared, workers)).await;
        }
        result
    }
}

impl Drop for DiskEngine {
    fn drop(&mut self) {
        if let Some(workers) = self.take_running() {
            // Without senders the journal closes the store and ends.
            let (requests, _) = mpsc::channel(1);
            drop(std::mem::replace(&mut self.requests, requests));
            Self::join(&self.shared, workers);
        }
    }
}
