//! The engine that forgets: the whole contract over plain maps behind one lock.
//!
//! It is the shortest reading of the contract, and what tests of the layers above run on. Every
//! call does all it does under the lock and never waits inside it, so calls are one after the other
//! by construction, and a commit is seen whole or not at all.

mod chunks;
mod json_pages;
mod places;
mod store;
mod topic_log;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use prombus_proto::{Clock, EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::{
    Batch, Bounds, Capabilities, CommitError, Committed, Condition, Durability, Engine, Health,
    Page, ReadBudget, ReadError, Retention, StateEntry, StateKey, Unavailable,
};
use store::Store;

/// Events and state in this process only.
pub struct MemoryEngine {
    clock: Arc<dyn Clock>,
    /// Nothing once it was closed.
    store: Mutex<Option<Store>>,
}

impl MemoryEngine {
    /// An empty engine that asks `clock` what has expired.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, store: Mutex::new(Some(Store::default())) }
    }

    /// Nothing panics between two changes that belong together, so a store that was locked by a
    /// thread that died is still whole.
    fn lock(&self) -> MutexGuard<'_, Option<Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T>(&self, question: impl FnOnce(&Store) -> T) -> Result<T, ReadError> {
        match self.lock().as_ref() {
            Some(store) => Ok(question(store)),
            None => Err(Unavailable::Closed.into()),
        }
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Store) -> Result<T, CommitError>,
    ) -> Result<T, CommitError> {
        match self.lock().as_mut() {
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
        self.ask(|store| match store.log(topic) {
            Some(log) => log.read(from, budget),
            None => Page::default(),
        })
    }

    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        self.ask(|store| store.bounds(topic))
    }

    async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        self.ask(Store::topics)
    }

    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        self.ask(|store| match store.log(topic) {
            Some(log) => log.seek_time(ts),
            None => Seq::FIRST,
        })
    }

    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
        self.ask(|store| store.log(topic)?.seek_id(id))
    }

    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        self.change(|store| Ok(store.trim(topic, below)))
    }

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        self.change(|store| store.retain(topic, rule, self.clock.now()))
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        self.ask(|store| store.get(key, self.clock.now()).cloned())
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        self.ask(|store| store.scan(prefix, after, limit, self.clock.now()))
    }

    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        match self.lock().as_mut() {
            Some(store) => store.watch(topic),
            // Without a sender it has ended before it began.
            None => watch::channel(Seq::ZERO).1,
        }
    }

    fn health(&self) -> Health {
        let condition = match *self.lock() {
            Some(_) => Condition::Healthy,
            None => Condition::Closed,
        };
        Health { condition, incidents: Vec::new() }
    }

    async fn close(&self) -> Result<(), CommitError> {
        *self.lock() = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
