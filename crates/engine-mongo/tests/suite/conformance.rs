//! The whole contract, on a replica set, and on a server without one.

use std::sync::Arc;

use async_trait::async_trait;
use libtest_mimic::Trial;
use prombus_engine::conformance::{self, Subject};
use prombus_engine::{Capabilities, Durability, Engine};
use prombus_engine_mongo::{MongoEngine, MongoOptions, Tail};
use prombus_proto::ManualClock;

use prombus_test_mongod::{Kind, new_database, shared};

pub(crate) const ON_A_REPLICA_SET: Capabilities = Capabilities {
    atomic_across_topics: true,
    several_gateways: true,
    gathers_commits: false,
    survives_restart: true,
    max_durability: Durability::Fsync,
};

pub(crate) const ALONE: Capabilities =
    Capabilities { atomic_across_topics: false, several_gateways: false, ..ON_A_REPLICA_SET };

pub(crate) fn trials() -> Vec<Trial> {
    let subject = |kind, tail| move || MongoSubject::new(kind, tail);
    [
        conformance::trials(
            "mongo",
            ON_A_REPLICA_SET,
            subject(Kind::ReplicaSet, Tail::ChangeStream),
        ),
        conformance::trials("mongo_standalone", ALONE, subject(Kind::Standalone, Tail::Polling)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

struct MongoSubject {
    kind: Kind,
    tail: Tail,
    database: String,
    clock: ManualClock,
}

impl MongoSubject {
    fn new(kind: Kind, tail: Tail) -> Self {
        Self { kind, tail, database: new_database(), clock: ManualClock::default() }
    }
}

#[async_trait]
impl Subject for MongoSubject {
    fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    async fn open(&mut self) -> Arc<dyn Engine> {
        let mut options = MongoOptions::at(shared(self.kind).url());
        options.database = Some(self.database.clone());
        options.clock = Arc::new(self.clock.clone());
        options.tail = self.tail;
        Arc::new(MongoEngine::open(&options).await.expect("the engine opens"))
    }
}
