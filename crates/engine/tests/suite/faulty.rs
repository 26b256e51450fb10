//! The fault-injecting wrapper: without faults it behaves like the engine it wraps.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::{Engine, Faults, FaultyEngine};
use prombus_proto::ManualClock;

use crate::memory::{self, MemorySubject};

/// Wraps the engines of another subject.
pub(crate) struct FaultySubject<S>(pub(crate) S);

#[async_trait]
impl<S: Subject> Subject for FaultySubject<S> {
    fn clock(&self) -> ManualClock {
        self.0.clock()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        let inner = self.0.open().await;
        Arc::new(FaultyEngine::new(inner, Faults::none()))
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    conformance::trials("faulty_memory", memory::CAPABILITIES, || {
        FaultySubject(MemorySubject::default())
    })
}
