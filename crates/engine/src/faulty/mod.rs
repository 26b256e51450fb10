//! An engine that fails on demand.
//!
//! [`FaultyEngine`] wraps another engine and forwards every call until its [`Faults`] are switched
//! on. It lets tests of the layers above meet failures that a healthy engine never shows: a commit
//! that was not stored, a commit that was stored but whose answer was lost, a commit that is slow,
//! a read that fails or is slow.

mod faults;

use std::sync::Arc;

use async_trait::async_trait;

use crate::delegating::DelegatingEngine;
use crate::{Batch, CommitError, Committed, Engine, ReadError, StateEntry, StateKey, Unavailable};
use faults::Gate;
pub use faults::{FaultReport, Faults};

/// Wraps an engine and injects the faults that a [`Faults`] handle switches on.
///
/// Commit faults apply to [`Engine::commit`]; read faults apply to every method that returns a
/// [`ReadError`]. Everything else is forwarded unchanged.
pub struct FaultyEngine {
    inner: Arc<dyn Engine>,
    faults: Faults,
    spared_commits: Option<&'static str>,
    spared_reads: Option<&'static str>,
}

impl FaultyEngine {
    /// Wraps `inner`. Clones of `faults` control this engine.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, faults: Faults) -> Self {
        Self { inner, faults, spared_commits: None, spared_reads: None }
    }

    /// Exempts commits that only change state under `prefix`.
    ///
    /// Background tasks write at times a test does not control; without an exemption they would
    /// use up a fault that is meant for another commit.
    #[must_use]
    pub fn sparing_commits_of(self, prefix: &'static str) -> Self {
        Self { spared_commits: Some(prefix), ..self }
    }

    /// Exempts reads of state under `prefix`, for the same reason.
    #[must_use]
    pub fn sparing_reads_of(self, prefix: &'static str) -> Self {
        Self { spared_reads: Some(prefix), ..self }
    }

    fn spares(&self, batch: &Batch) -> bool {
        batch.events.is_empty()
            && !batch.state.is_empty()
            && batch.state.iter().all(|op| starts_with(op.key().as_bytes(), self.spared_commits))
    }
}

fn starts_with(key: &[u8], prefix: Option<&str>) -> bool {
    prefix.is_some_and(|prefix| key.starts_with(prefix.as_bytes()))
}

#[async_trait]
impl DelegatingEngine for FaultyEngine {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn before_read(&self, key: Option<&[u8]>) -> Result<(), Unavailable> {
        match key {
            Some(key) if starts_with(key, self.spared_reads) => Ok(()),
            _ => self.faults.before_read(),
        }
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        if !starts_with(key.as_bytes(), self.spared_reads) {
            self.faults.pass_gate(Gate::StateReads).await;
        }
        self.inner.get(key).await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        if self.spares(&batch) {
            return self.inner.commit(batch).await;
        }
        self.faults.pass_gate(Gate::Commits).await;
        self.faults.before_commit()?;
        let committed = self.inner.commit(batch).await?;
        self.faults.after_commit()?;
        Ok(committed)
    }
}

#[cfg(test)]
mod tests;
