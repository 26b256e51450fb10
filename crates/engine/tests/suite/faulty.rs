//! The wrapper that injects faults: idle, it is the engine it wraps.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::{Engine, Faults, FaultyEngine};
use prombus_proto::ManualClock;

use crate::memory::{self, MemorySubject};

/// Another subject, wrapped.
pub(crate) struct Wrapped<S>(pub(crate) S);

#[async_trait]
impl<S: Subject> Subject for Wrapped<S> {
    fn clock(&self) -> ManualClock {
        self.0.clock()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        let inner = self.0.open().await;
        Arc::new(FaultyEngine::new(inner, Faults::none()))
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    conformance::trials("faulty_memory", memory::CAPABILITIES, || Wrapped(MemorySubject::default()))
}
