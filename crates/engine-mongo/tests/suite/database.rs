//! The database of one test, with engines and the bare driver.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::Trial;
use mongodb::Client;
use mongodb::bson::Document;
use prombus_bus::STATE_KINDS;
use prombus_engine::{Batch, Durability, Engine, Expect, StateKey, StateOp};
use prombus_engine_mongo::{ChangeDetection, MongoEngine, MongoOptions};
use prombus_proto::{Event, EventId, Headers, ManualClock, Payload, Timestamp, Topic};

use prombus_test_mongod::{Kind, new_database, shared};

/// Only keeps a hanging test from blocking the suite; no test asserts how long anything takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// Far ahead of the servers' clock, so that they remove nothing the tests still need.
pub(crate) const NOW: Timestamp = Timestamp(4_000_000_000_000);

pub(crate) struct Database {
    pub(crate) options: MongoOptions,
    pub(crate) clock: ManualClock,
    pub(crate) bare: mongodb::Database,
}

impl Database {
    /// A new database on the shared replica set.
    pub(crate) async fn new() -> Self {
        Self::at(&shared(Kind::ReplicaSet).url()).await
    }

    pub(crate) async fn at(url: &str) -> Self {
        Self::named(url, &new_database()).await
    }

    pub(crate) async fn named(url: &str, name: &str) -> Self {
        let clock = ManualClock::at(NOW);
        let mut options = MongoOptions::at(url, STATE_KINDS);
        options.database = Some(name.to_owned());
        options.clock = Arc::new(clock.clone());
        let bare = Client::with_uri_str(url).await.unwrap().database(name);
        Self { options, clock, bare }
    }

    pub(crate) async fn engine(&self) -> MongoEngine {
        MongoEngine::open(&self.options).await.unwrap()
    }

    pub(crate) async fn polling_engine(&self) -> MongoEngine {
        let options =
            MongoOptions { change_detection: ChangeDetection::Polling, ..self.options.clone() };
        MongoEngine::open(&options).await.unwrap()
    }

    pub(crate) fn collection(&self, name: &str) -> mongodb::Collection<Document> {
        self.bare.collection(name)
    }
}

/// A trial with its own runtime.
pub(crate) fn trial<F>(name: &str, work: fn() -> F) -> Trial
where
    F: Future<Output = ()> + 'static,
{
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let done = runtime.block_on(async { tokio::time::timeout(HANG_TIMEOUT, work()).await });
        Ok(done.map_err(|_| "timed out".to_owned())?)
    })
}

/// Waits until a condition holds that the servers bring about.
pub(crate) async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

pub(crate) fn event(topic_name: &str, id: &str) -> Event {
    Event {
        id: EventId::new(id).unwrap(),
        ts: NOW,
        topic: topic(topic_name),
        key: None,
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from_static(b"{\"n\": 1e2}")).unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
}

pub(crate) fn of_events(events: &[Event]) -> Batch {
    Batch::of_events(events.iter().map(Event::encode).collect(), Durability::Fsync)
}

pub(crate) fn key(name: &str) -> StateKey {
    StateKey::new(name.to_owned()).unwrap()
}

pub(crate) fn put(name: &str, value: &str, expires_at: Option<Timestamp>) -> StateOp {
    let value = Bytes::copy_from_slice(value.as_bytes());
    StateOp::Put { key: key(name), value, expires_at, expect: Expect::Any }
}

pub(crate) fn of_state(state: Vec<StateOp>) -> Batch {
    Batch::of_state(state, Durability::Fsync)
}

/// Appends one event for each id. Returns their positions.
pub(crate) async fn append(engine: &dyn Engine, topic_name: &str, ids: &[&str]) -> Vec<u64> {
    let events: Vec<Event> = ids.iter().map(|id| event(topic_name, id)).collect();
    let committed = engine.commit(of_events(&events)).await.unwrap();
    committed.positions.iter().map(|position| position.seq.0).collect()
}
