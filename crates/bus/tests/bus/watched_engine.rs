//! An engine that records its commits, and can pretend that events are damaged.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use prombus_engine::delegating::DelegatingEngine;
use prombus_engine::{
    Batch, Capabilities, CommitError, Committed, Damaged, Durability, Engine, Page, ReadBudget,
    ReadError,
};
use prombus_proto::{Seq, Topic};

pub(crate) struct WatchedEngine {
    inner: Arc<dyn Engine>,
    commits: Mutex<Vec<SeenCommit>>,
    damaged: Mutex<Option<(Topic, Seq, Seq)>>,
    several_gateways: bool,
    gathers_commits: bool,
    /// Whether the inner engine outlives a bus that closes.
    stays_open: bool,
}

/// A recorded commit.
#[derive(Clone, Debug)]
pub(crate) struct SeenCommit {
    pub(crate) topics: Vec<Topic>,
    pub(crate) bytes: usize,
    pub(crate) changes_state: bool,
    pub(crate) durability: Durability,
}

impl WatchedEngine {
    pub(crate) fn over(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self::of(inner))
    }

    /// Takes one commit at a time, whatever the capabilities of `inner`.
    pub(crate) fn for_one_commit(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self { gathers_commits: false, ..Self::of(inner) })
    }

    /// Claims to support several gateways, and takes one commit at a time like engines that do.
    pub(crate) fn for_several(inner: Arc<dyn Engine>) -> Arc<Self> {
        let of_one = Self::of(inner);
        Arc::new(Self {
            several_gateways: true,
            gathers_commits: false,
            stays_open: true,
            ..of_one
        })
    }

    /// Outlives a bus that closes.
    pub(crate) fn that_stays_open(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self { stays_open: true, ..Self::of(inner) })
    }

    fn of(inner: Arc<dyn Engine>) -> Self {
        let Capabilities { several_gateways, gathers_commits, .. } = inner.capabilities();
        let (commits, damaged) = (Mutex::default(), Mutex::default());
        let stays_open = false;
        Self { inner, commits, damaged, several_gateways, gathers_commits, stays_open }
    }

    /// Returns the commits since the last call.
    pub(crate) fn take_commits(&self) -> Vec<SeenCommit> {
        std::mem::take(&mut self.commits.lock().unwrap())
    }

    /// Makes reads of these events fail.
    pub(crate) fn damage(&self, topic: &Topic, first: u64, last: u64) {
        *self.damaged.lock().unwrap() = Some((topic.clone(), Seq(first), Seq(last)));
    }
}

#[async_trait]
impl DelegatingEngine for WatchedEngine {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn capabilities(&self) -> Capabilities {
        let Self { several_gateways, gathers_commits, .. } = *self;
        Capabilities { several_gateways, gathers_commits, ..self.inner.capabilities() }
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.commits.lock().unwrap().push(SeenCommit {
            topics: batch.events.iter().map(|event| event.topic().clone()).collect(),
            bytes: batch.events.iter().map(|event| event.max_json_bytes()).sum(),
            changes_state: !batch.state.is_empty(),
            durability: batch.durability,
        });
        let asked = batch.durability;
        let mut committed = self.inner.commit(batch).await?;
        if self.several_gateways {
            committed.durability = asked;
        }
        Ok(committed)
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        let mut page = self.inner.read(topic, from, budget).await?;
        let damaged = self.damaged.lock().unwrap().clone();
        if let Some((damaged, first, last)) = damaged
            && damaged == *topic
            && page.events.iter().any(|event| event.seq >= first && event.seq <= last)
        {
            page.events.retain(|event| event.seq < first);
            if page.events.is_empty() {
                let detail = "a flipped bit".to_owned();
                let topic = topic.clone();
                return Err(Damaged::Events { topic, first, last, detail }.into());
            }
        }
        Ok(page)
    }

    async fn close(&self) -> Result<(), CommitError> {
        match self.stays_open {
            true => Ok(()),
            false => self.inner.close().await,
        }
    }
}
