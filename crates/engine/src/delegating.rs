//! Forwarding to another engine, written once for all wrappers.

use async_trait::async_trait;
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::disk::backup::{Backup, BackupError, OnDamage};
use crate::{
    Arrival, Batch, Bounds, Capabilities, CommitError, Committed, Engine, Figures, Health, Page,
    ReadBudget, ReadError, Retention, StateEntry, StateKey, Unavailable,
};

/// An engine that wraps another one: every call goes to [`inner`](Self::inner) unless the wrapper
/// overrides it here.
///
/// Implementing this trait implements [`Engine`]. Do not import both traits in a module that calls
/// them: the methods share their names.
#[async_trait]
pub trait DelegatingEngine: Send + Sync + 'static {
    /// The wrapped engine.
    fn inner(&self) -> &dyn Engine;

    /// Runs before every read; an error is returned instead of reading. `key` is the state key or
    /// the prefix that is looked up, `None` for reads of topics.
    fn before_read(&self, key: Option<&[u8]>) -> Result<(), Unavailable> {
        let _ = key;
        Ok(())
    }

    /// Runs before [`Engine::trim`] and [`Engine::retain`]; an error is returned instead.
    fn before_trim(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    /// See [`Engine::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    /// See [`Engine::commit`].
    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.inner().commit(batch).await
    }

    /// See [`Engine::read`]. Runs after [`before_read`](Self::before_read).
    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        self.inner().read(topic, from, budget).await
    }

    /// See [`Engine::seek_ids`]. Runs after [`before_read`](Self::before_read).
    async fn seek_ids(
        &self,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<Vec<Option<Seq>>, ReadError> {
        self.inner().seek_ids(topic, ids).await
    }

    /// See [`Engine::get`]. Runs after [`before_read`](Self::before_read).
    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        self.inner().get(key).await
    }

    /// See [`Engine::get_many`]. Runs after [`before_read`](Self::before_read).
    async fn get_many(&self, keys: &[StateKey]) -> Result<Vec<Option<StateEntry>>, ReadError> {
        self.inner().get_many(keys).await
    }

    /// See [`Engine::watch`].
    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        self.inner().watch(topic)
    }

    /// See [`Engine::backup`].
    async fn backup(&self, on_damage: OnDamage) -> Result<Backup, BackupError> {
        self.inner().backup(on_damage).await
    }

    /// See [`Engine::health`].
    fn health(&self) -> Health {
        self.inner().health()
    }

    /// See [`Engine::figures`].
    async fn figures(&self) -> Figures {
        self.inner().figures().await
    }

    /// See [`Engine::close`].
    async fn close(&self) -> Result<(), CommitError> {
        self.inner().close().await
    }
}

#[async_trait]
impl<T: DelegatingEngine> Engine for T {
    fn capabilities(&self) -> Capabilities {
        DelegatingEngine::capabilities(self)
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        DelegatingEngine::commit(self, batch).await
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        self.before_read(None)?;
        DelegatingEngine::read(self, topic, from, budget).await
    }

    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        self.before_read(None)?;
        self.inner().bounds(topic).await
    }

    async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        self.before_read(None)?;
        self.inner().topics().await
    }

    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        self.before_read(None)?;
        self.inner().seek_time(topic, ts).await
    }

    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
        self.before_read(None)?;
        self.inner().seek_id(topic, id).await
    }

    async fn seek_ids(
        &self,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<Vec<Option<Seq>>, ReadError> {
        self.before_read(None)?;
        DelegatingEngine::seek_ids(self, topic, ids).await
    }

    async fn arrival(&self, topic: &Topic, seq: Seq) -> Result<Option<Arrival>, ReadError> {
        self.before_read(None)?;
        self.inner().arrival(topic, seq).await
    }

    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        self.before_trim()?;
        self.inner().trim(topic, below).await
    }

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        self.before_trim()?;
        self.inner().retain(topic, rule).await
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        self.before_read(Some(key.as_bytes()))?;
        DelegatingEngine::get(self, key).await
    }

    async fn get_many(&self, keys: &[StateKey]) -> Result<Vec<Option<StateEntry>>, ReadError> {
        for key in keys {
            self.before_read(Some(key.as_bytes()))?;
        }
        DelegatingEngine::get_many(self, keys).await
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        self.before_read(Some(prefix))?;
        self.inner().scan(prefix, after, limit).await
    }

    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        DelegatingEngine::watch(self, topic)
    }

    async fn backup(&self, on_damage: OnDamage) -> Result<Backup, BackupError> {
        DelegatingEngine::backup(self, on_damage).await
    }

    fn health(&self) -> Health {
        DelegatingEngine::health(self)
    }

    async fn figures(&self) -> Figures {
        DelegatingEngine::figures(self).await
    }

    async fn close(&self) -> Result<(), CommitError> {
        DelegatingEngine::close(self).await
    }
}
