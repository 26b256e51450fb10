//! The suite on trial: an engine that is too simple to be wrong, and that makes every promise.
//!
//! All engines of one subject are doors to one memory engine, which outlasts them. So the cases
//! about restarts and about several gateways are shown to hold without any storage, and a real
//! engine that fails one of them knows where to look.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::{
    Batch, Bounds, Capabilities, CommitError, Committed, Condition, Engine, Health, MemoryEngine,
    Page, ReadBudget, ReadError, Retention, StateEntry, StateKey, Unavailable,
};
use prombus_proto::{EventId, ManualClock, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::memory;

const CAPABILITIES: Capabilities =
    Capabilities { several_gateways: true, survives_restart: true, ..memory::CAPABILITIES };

struct LastingSubject {
    clock: ManualClock,
    memory: Arc<MemoryEngine>,
}

impl LastingSubject {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self { memory: Arc::new(MemoryEngine::new(Arc::new(clock.clone()))), clock }
    }
}

#[async_trait]
impl Subject for LastingSubject {
    fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        Arc::new(Door { memory: self.memory.clone(), closed: watch::Sender::new(false) })
    }
}

struct Door {
    memory: Arc<MemoryEngine>,
    closed: watch::Sender<bool>,
}

impl Door {
    fn open(&self) -> Result<&MemoryEngine, Unavailable> {
        match *self.closed.borrow() {
            true => Err(Unavailable::Closed),
            false => Ok(&self.memory),
        }
    }
}

#[async_trait]
impl Engine for Door {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.open()?.commit(batch).await
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        self.open()?.read(topic, from, budget).await
    }

    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        self.open()?.bounds(topic).await
    }

    async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        self.open()?.topics().await
    }

    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        self.open()?.seek_time(topic, ts).await
    }

    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
        self.open()?.seek_id(topic, id).await
    }

    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        self.open()?.trim(topic, below).await
    }

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        self.open()?.retain(topic, rule).await
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        self.open()?.get(key).await
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        self.open()?.scan(prefix, after, limit).await
    }

    /// The memory engine goes on, so a watch of this door is one of its own that is fed from there
    /// and ends with the door.
    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        let mut growth = self.memory.watch(topic);
        let (told, receiver) = watch::channel(*growth.borrow_and_update());
        let mut closed = self.closed.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    // An error says that the door was dropped.
                    _ = closed.wait_for(|closed| *closed) => return,
                    _ = growth.changed() => told.send_replace(*growth.borrow_and_update()),
                };
            }
        });
        receiver
    }

    fn health(&self) -> Health {
        let condition = match *self.closed.borrow() {
            true => Condition::Closed,
            false => Condition::Healthy,
        };
        Health { condition, incidents: Vec::new() }
    }

    async fn close(&self) -> Result<(), CommitError> {
        self.closed.send_replace(true);
        Ok(())
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    conformance::trials("lasting_memory", CAPABILITIES, LastingSubject::new)
}
