//! Tests the conformance suite itself, with an engine that is too simple to be wrong and that
//! claims every capability.
//!
//! Every engine that a subject opens is a handle to one memory engine, which outlives the handles.
//! The cases for restarts and for several gateways therefore run without any storage: if a real
//! engine fails one of them, the fault is in the engine, not in the suite.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::delegating::DelegatingEngine;
use prombus_engine::{
    Batch, Capabilities, CommitError, Committed, Condition, Engine, Health, MemoryEngine,
    Unavailable,
};
use prombus_proto::{ManualClock, Seq, Topic};
use tokio::sync::watch;

use crate::memory;

const CAPABILITIES: Capabilities =
    Capabilities { several_gateways: true, survives_restart: true, ..memory::CAPABILITIES };

struct SharedMemorySubject {
    clock: ManualClock,
    memory: Arc<MemoryEngine>,
}

impl SharedMemorySubject {
    fn new() -> Self {
        let clock = ManualClock::default();
        Self { memory: Arc::new(MemoryEngine::new(Arc::new(clock.clone()))), clock }
    }
}

#[async_trait]
impl Subject for SharedMemorySubject {
    fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        Arc::new(SharedMemoryHandle {
            memory: self.memory.clone(),
            closed: watch::Sender::new(false),
        })
    }
}

struct SharedMemoryHandle {
    memory: Arc<MemoryEngine>,
    closed: watch::Sender<bool>,
}

impl SharedMemoryHandle {
    fn check_open(&self) -> Result<(), Unavailable> {
        match *self.closed.borrow() {
            true => Err(Unavailable::Closed),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl DelegatingEngine for SharedMemoryHandle {
    fn inner(&self) -> &dyn Engine {
        &*self.memory
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn before_read(&self, _key: Option<&[u8]>) -> Result<(), Unavailable> {
        self.check_open()
    }

    fn before_trim(&self) -> Result<(), Unavailable> {
        self.check_open()
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.check_open()?;
        self.memory.commit(batch).await
    }

    /// The memory engine outlives this handle, so a task copies its watch into one that ends with
    /// the handle.
    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        let mut growth = self.memory.watch(topic);
        let (sender, receiver) = watch::channel(*growth.borrow_and_update());
        let mut closed = self.closed.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    // An error means that the handle was dropped.
                    _ = closed.wait_for(|closed| *closed) => return,
                    changed = growth.changed() => match changed {
                        Ok(()) => sender.send_replace(*growth.borrow_and_update()),
                        // The topic was deleted.
                        Err(_) => return,
                    },
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
    conformance::trials("shared_memory", CAPABILITIES, SharedMemorySubject::new)
}
