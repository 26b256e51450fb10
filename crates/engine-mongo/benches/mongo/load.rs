//! What is written: batch size, writers, topics and durability.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prombus_engine::Durability;
use prombus_engine_mongo::{MongoEngine, MongoOptions};
use prombus_proto::{IdSource, NewEvent, Payload, SystemClock, SystemRandom, Timestamp, Topic};
use prombus_test_mongod::new_database;

/// The duration of one measurement.
pub(crate) const EACH: Duration = Duration::from_secs(1);

/// One line of the table.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) durability: Durability,
    pub(crate) writers: usize,
    /// Events per batch.
    pub(crate) events: usize,
    /// Batches in flight per writer of the bus.
    pub(crate) window: usize,
    pub(crate) topics: Topics,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topics {
    /// All writers share one topic.
    One,
    /// Every writer has its own topic.
    Each,
}

impl Load {
    pub(crate) fn name(&self) -> String {
        let Load { durability, writers, events, window, topics } = self;
        let durability = format!("{durability:?}").to_lowercase();
        let window = if *window == 1 { String::new() } else { format!(", window {window}") };
        let topics = match topics {
            _ if *writers == 1 => "",
            Topics::One => ", one topic",
            Topics::Each => ", a topic each",
        };
        format!("{durability}, {writers} x {events}{window}{topics}")
    }

    pub(crate) fn topic_of(&self, writer: usize) -> Topic {
        let number = if self.topics == Topics::One { 0 } else { writer };
        Topic::new(&format!("t{number}")).unwrap()
    }

    /// The events of one batch. Built for each batch, like incoming events.
    pub(crate) fn new_events(&self) -> Vec<NewEvent> {
        let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(100));
        let payload = Payload::parse(Bytes::from(payload)).unwrap();
        let ts = Some(Timestamp(1_700_000_000_000));
        (0..self.events).map(|_| NewEvent { ts, ..NewEvent::of(payload.clone()) }).collect()
    }
}

pub(crate) fn new_ids() -> IdSource {
    IdSource::new(Arc::new(SystemClock), Arc::new(SystemRandom))
}

/// An engine on a new database, and the database's name.
pub(crate) async fn new_engine(url: &str) -> (Arc<MongoEngine>, String) {
    let name = new_database();
    let mut options = MongoOptions::at(url, prombus_bus::STATE_KINDS);
    options.database = Some(name.clone());
    (Arc::new(MongoEngine::open(&options).await.unwrap()), name)
}
