//! The disk engine: a write-ahead log, topic segments behind it, and keyed state beside them.
//!
//! **In.** [`Engine::commit`] hands a batch to the journal, one thread that gathers all that waits,
//! gives positions (`journal::staging`), writes one frame to the log (`wal`), syncs once,
//! shows it to readers (`read::view`) and answers everybody.
//!
//! **Behind.** When a log file is full, the checkpoint thread copies its records into the topics'
//! segments (`segment`), its ids and state into sorted files (`ids`, `state`), makes all of
//! it durable, writes the `checkpoint::catalog` and removes the log file.
//!
//! **Out.** Readers (`read`) look up in the view where events are, let go of it
//! and read the files.
//!
//! **Again.** `recovery` loads the catalog and reads the log files it does not cover.

mod checkpoint;
mod checksum;
mod file_cache;
mod file_header;
mod ids;
mod journal;
mod layout;
mod options;
mod read;
mod record;
mod recovery;
mod segment;
mod shared;
mod state;
mod storage_faults;
mod wal;

use std::fs::{self, File, TryLockError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

pub use self::options::DiskOptions;
pub use self::storage_faults::StorageFaults;

use self::checkpoint::{Checkpointer, Task};
use self::journal::{Journal, Request};
use self::layout::Layout;
use self::record::EndSum;
use self::recovery::Recovered;
use self::shared::Shared;
use crate::{
    Batch, Bounds, Capabilities, CommitError, Committed, Condition, Durability, Engine, Health,
    OpenError, Page, ReadBudget, ReadError, Retention, StateEntry, StateKey, Unavailable,
};

/// How many requests may wait for the journal before senders wait, too.
const REQUESTS_WAITING: usize = 8192;

/// Events and state in a folder. One process at a time.
pub struct DiskEngine {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    running: Mutex<Option<Running>>,
}

/// The threads, and the lock they work under.
struct Running {
    journal: JoinHandle<()>,
    checkpointer: JoinHandle<()>,
    lock: File,
}

impl DiskEngine {
    /// Opens the store in the folder, or makes one. What had to be repaired is in
    /// [`Engine::health`].
    pub fn open(options: &DiskOptions) -> Result<Self, OpenError> {
        let layout = Layout::new(options.folder.clone());
        let io = |source| OpenError::Io { path: options.folder.clone(), source };
        fs::create_dir_all(&options.folder).map_err(io)?;
        let lock = File::options().write(true).create(true).truncate(false).open(layout.lock());
        let lock = lock.map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Locked { path: options.folder.clone() });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let Recovered { shared, catalog, sealed, start } = recovery::recover(options, layout)?;
        let shared = Arc::new(shared);
        let (tasks, checkpointer) = Checkpointer::new(Arc::clone(&shared), catalog);
        for wal in sealed {
            shared.backlog.add();
            tasks.send(Task::Move(wal)).expect("the receiver is at hand");
        }
        let (requests, receiver) = mpsc::channel(REQUESTS_WAITING);
        let journal = Journal::new(Arc::clone(&shared), receiver, tasks, &start);
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(run).map_err(io)
        };
        let running = Running {
            checkpointer: spawn("prombus-checkpoint", Box::new(|| checkpointer.run()))?,
            journal: spawn("prombus-journal", Box::new(|| journal.run()))?,
            lock,
        };
        Ok(Self { shared, requests, running: Mutex::new(Some(running)) })
    }

    /// Hands a request to the journal and waits for its answer.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, CommitError> {
        let (reply, answer) = oneshot::channel();
        let closed = || CommitError::Unavailable(Unavailable::Closed);
        // Mostly there is room, and nothing to wait for.
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

    /// Runs what may wait for the disk where waiting does no harm.
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

    /// Waits for the threads and lets go of the folder.
    fn join(running: Running) {
        let Running { journal, checkpointer, lock } = running;
        // A thread that panicked has said so already.
        let _ = journal.join();
        let _ = checkpointer.join();
        // A child that was just forked may hold the file open for a moment; the lock ends now.
        let _ = lock.unlock();
    }

    fn take_running(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
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
        // Here rather than in the journal, which every commit has to pass.
        let bytes = batch.check_sizes()?;
        let end_sums = batch.events.iter().map(EndSum::of).collect();
        let commit = |reply| Request::Commit { batch, bytes, end_sums, reply };
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
        // A retention rule alone makes no topic.
        let topics = view.topics.iter().filter(|(_, view)| view.next > Seq::FIRST);
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

    fn health(&self) -> Health {
        Health { condition: self.shared.condition(), incidents: self.shared.incidents() }
    }

    async fn close(&self) -> Result<(), CommitError> {
        let result = match self.ask(|reply| Request::Close { reply }).await {
            Ok(result) => result,
            // Closed before.
            Err(_) => Ok(()),
        };
        if let Some(running) = self.take_running() {
            // The threads end right after their answer; the folder is free when this returns.
            let _ = tokio::task::spawn_blocking(|| Self::join(running)).await;
        }
        result
    }
}

impl Drop for DiskEngine {
    fn drop(&mut self) {
        if let Some(running) = self.take_running() {
            // The last sender goes, and with it the journal; it closes properly on its way.
            let (requests, _) = mpsc::channel(1);
            drop(std::mem::replace(&mut self.requests, requests));
            Self::join(running);
        }
    }
}
