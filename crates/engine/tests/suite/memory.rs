//! The memory engine.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::{Capabilities, Durability, Engine, MemoryEngine};
use prombus_proto::ManualClock;

pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    atomic_across_topics: true,
    several_gateways: false,
    gathers_commits: true,
    survives_restart: false,
    max_durability: Durability::Memory,
};

#[derive(Default)]
pub(crate) struct MemorySubject {
    clock: ManualClock,
}

#[async_trait]
impl Subject for MemorySubject {
    fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        Arc::new(MemoryEngine::new(Arc::new(self.clock.clone())))
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    conformance::trials("memory", CAPABILITIES, MemorySubject::default)
}
