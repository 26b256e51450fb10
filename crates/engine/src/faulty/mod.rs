//! An engine that fails on demand.
//!
//! [`FaultyEngine`] wraps another one and is transparent until its [`Faults`] say otherwise, so the
//! layers above are tested against failures that a healthy engine never shows: a commit that did not
//! happen, a commit that happened and whose answer was lost, a commit that takes its time, a read
//! that fails.

mod faults;

use std::sync::Arc;

use async_trait::async_trait;
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::{
    Batch, Bounds, Capabilities, CommitError, Committed, Engine, Health, Page, ReadBudget,
    ReadError, Retention, StateEntry, StateKey,
};
pub use faults::{FaultReport, Faults};

/// Another engine, and the faults it is made to have.
///
/// Faults of commits concern [`Engine::commit`]; faults of reads concern every method that answers
/// a [`ReadError`]. All else goes straight through.
pub struct FaultyEngine {
    inner: Arc<dyn Engine>,
    faults: Faults,
}

impl FaultyEngine {
    /// `inner`, with the faults that `faults` switches on.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

#[async_trait]
impl Engine for FaultyEngine {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.faults.pass_gate().await;
        self.faults.before_commit()?;
        let committed = self.inner.commit(batch).await?;
        self.faults.after_commit()?;
        Ok(committed)
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        self.faults.before_read()?;
        self.inner.read(topic, from, budget).await
    }

    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        self.faults.before_read()?;
        self.inner.bounds(topic).await
    }

    async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        self.faults.before_read()?;
        self.inner.topics().await
    }

    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        self.faults.before_read()?;
        self.inner.seek_time(topic, ts).await
    }

    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
        self.faults.before_read()?;
        self.inner.seek_id(topic, id).await
    }

    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        self.inner.trim(topic, below).await
    }

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        self.inner.retain(topic, rule).await
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        self.faults.before_read()?;
        self.inner.get(key).await
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        self.faults.before_read()?;
        self.inner.scan(prefix, after, limit).await
    }

    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        self.inner.watch(topic)
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    async fn close(&self) -> Result<(), CommitError> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests;
