//! The in-memory engine: the whole contract over plain maps behind one lock.
//!
//! It is the shortest implementation of the contract, and the tests of the layers above run on it.
//! Every call does all its work under the lock without awaiting, so calls are serialised and a
//! commit is visible as a whole or not at all.

mod chunks;
mod id_index;
mod json_arena;
mod store;
mod topic_log;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use prombus_proto::{Clock, EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::disk::backup::{Backup, BackupError, OnDamage};
use crate::{
    Arrival, Batch, Bounds, Capabilities, CommitError, Committed, Condition, Durability, Engine,
    Health, Page, ReadBudget, ReadError, Retention, StateEntry, StateKey, Unavailable,
};
use store::Store;

/// Keeps events and state in the memory of this process. Everything is lost when it is closed.
pub struct MemoryEngine {
    clock: Arc<dyn Clock>,
    /// `None` after `close`.
    store: Mutex<Option<Store>>,
}

impl MemoryEngine {
    /// Creates an empty engine. `clock` decides what has expired.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, store: Mutex::new(Some(Store::default())) }
    }

    fn query<T>(&self, query: impl FnOnce(&Store) -> T) -> Result<T, ReadError> {
        match self.store.lock().as_ref() {
            Some(store) => Ok(query(store)),
            None => Err(Unavailable::Closed.into()),
        }
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Store) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        match self.store.lock().as_mut() {
            Some(store) => change(store),
            None => Err(Unavailable::Closed.into()),
        }
    }
}

#[async_trait]
impl Engine for MemoryEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            atomic_across_topics: true,
            several_gateways: false,
            gathers_commits: true,
            survives_restart: false,
            max_durability: Durability::Memory,
        }
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        batch.check_sizes()?;
        self.change(|store| store.commit(batch, self.clock.now()))
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        self.query(|store| match store.log(topic) {
            Some(log) => log.read(from, budget),
            None => Page::default(),
        })
    }

    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        self.query(|store| store.bounds(topic))
    }

    async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        self.query(Store::topics)
    }

    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        self.query(|store| match store.log(topic) {
            Some(log) => log.seek_time(ts),
            None => Seq::FIRST,
        })
    }

    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
        self.query(|store| store.log(topic)?.seek_id(id))
    }

    async fn seek_ids(
        &self,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<Vec<Option<Seq>>, ReadError> {
        self.query(|store| ids.iter().map(|id| store.log(topic)?.seek_id(id)).collect())
    }

    async fn arrival(&self, topic: &Topic, seq: Seq) -> Result<Option<Arrival>, ReadError> {
        self.query(|store| store.log(topic)?.arrival(seq))
    }

    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        self.change(|store| Ok(store.trim(topic, below)))
    }

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        self.change(|store| store.retain(topic, rule, self.clock.now()))
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        self.query(|store| store.get(key, self.clock.now()).cloned())
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        self.query(|store| store.scan(prefix, after, limit, self.clock.now()))
    }

    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        match self.store.lock().as_mut() {
            Some(store) => store.watch(topic),
            // Without a sender, the channel is closed from the start.
            None => watch::channel(Seq::ZERO).1,
        }
    }

    async fn backup(&self, _: OnDamage) -> Result<Backup, BackupError> {
        Err(BackupError::Unsupported(
            "the in-memory store forgets everything when the server stops, so there is nothing to back \
             up; export its topics instead, or use the disk engine",
        ))
    }

    fn health(&self) -> Health {
        let condition = match *self.store.lock() {
            Some(_) => Condition::Healthy,
            None => Condition::Closed,
        };
        Health { condition, incidents: Vec::new() }
    }

    async fn close(&self) -> Result<(), CommitError> {
        *self.store.lock() = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
