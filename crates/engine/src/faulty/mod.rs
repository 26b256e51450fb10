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
    ReadError, Retention, StateEntry, StateKey, Unavailable,
};
pub use faults::{FaultReport, Faults};

/// Another engine, and the faults it is made to have.
///
/// Faults of commits concern [`Engine::commit`]; faults of reads concern every method that answers
/// a [`ReadError`]. All else goes straight through.
pub struct FaultyEngine {
    inner: Arc<dyn Engine>,
    faults: Faults,
    commits_spared: Option<&'static str>,
    reads_spared: Option<&'static str>,
}

impl FaultyEngine {
    /// `inner`, with the faults that `faults` switches on.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, faults: Faults) -> Self {
        Self { inner, faults, commits_spared: None, reads_spared: None }
    }

    /// No fault comes to a commit of nothing but state under this prefix.
    ///
    /// What is written at times of its own would otherwise take a fault that was meant for something
    /// else. So with reads.
    #[must_use]
    pub fn sparing_commits_of(self, prefix: &'static str) -> Self {
        Self { commits_spared: Some(prefix), ..self }
    }

    /// No fault comes to a read of state under this prefix.
    #[must_use]
    pub fn sparing_reads_of(self, prefix: &'static str) -> Self {
        Self { reads_spared: Some(prefix), ..self }
    }

    fn spares(&self, batch: &Batch) -> bool {
        batch.events.is_empty()
            && !batch.state.is_empty()
            && batch.state.iter().all(|op| begins_with(op.key().as_bytes(), self.commits_spared))
    }

    fn before_read_of(&self, key: &[u8]) -> Result<(), Unavailable> {
        if begins_with(key, self.reads_spared) { Ok(()) } else { self.faults.before_read() }
    }
}

fn begins_with(key: &[u8], prefix: Option<&str>) -> bool {
    prefix.is_some_and(|prefix| key.starts_with(prefix.as_bytes()))
}

#[async_trait]
impl Engine for FaultyEngine {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        if self.spares(&batch) {
            return self.inner.commit(batch).await;
        }
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
        self.before_read_of(key.as_bytes())?;
        self.inner.get(key).await
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        self.before_read_of(prefix)?;
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
