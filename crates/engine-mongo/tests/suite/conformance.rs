//! The whole contract, on a replica set and on a standalone server.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_bus::STATE_KINDS;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::{Capabilities, Durability, Engine};
use prombus_engine_mongo::{ChangeDetection, MongoEngine, MongoOptions};
use prombus_proto::ManualClock;

use prombus_test_mongod::{Kind, new_database, shared};

pub(crate) const ON_A_REPLICA_SET: Capabilities = Capabilities {
    atomic_across_topics: true,
    several_gateways: true,
    gathers_commits: false,
    survives_restart: true,
    max_durability: Durability::Fsync,
};

pub(crate) const STANDALONE: Capabilities =
    Capabilities { atomic_across_topics: false, several_gateways: false, ..ON_A_REPLICA_SET };

pub(crate) fn trials() -> Vec<Trial> {
    let subject = |kind, detection| move || MongoSubject::new(kind, detection);
    [
        conformance::trials(
            "mongo",
            ON_A_REPLICA_SET,
            subject(Kind::ReplicaSet, ChangeDetection::ChangeStream),
        ),
        conformance::trials(
            "mongo_standalone",
            STANDALONE,
            subject(Kind::Standalone, ChangeDetection::Polling),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

struct MongoSubject {
    kind: Kind,
    change_detection: ChangeDetection,
    database: String,
    clock: ManualClock,
}

impl MongoSubject {
    fn new(kind: Kind, change_detection: ChangeDetection) -> Self {
        Self { kind, change_detection, database: new_database(), clock: ManualClock::default() }
    }
}

#[async_trait]
impl Subject for MongoSubject {
    fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        let mut options = MongoOptions::at(shared(self.kind).url(), STATE_KINDS);
        options.database = Some(self.database.clone());
        options.clock = Arc::new(self.clock.clone());
        options.change_detection = self.change_detection;
        Arc::new(MongoEngine::open(&options).await.expect("the engine opens"))
    }
}
