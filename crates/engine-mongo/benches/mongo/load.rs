//! What is written: how much at once, by how many, to which topics, and how safely.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prombus_engine::Durability;
use prombus_engine_mongo::{MongoEngine, MongoOptions};
use prombus_proto::{IdSource, NewEvent, Payload, SystemClock, SystemRandom, Timestamp, Topic};
use prombus_test_mongod::new_database;

/// How long one measurement lasts.
pub(crate) const EACH: Duration = Duration::from_secs(1);

/// One line of the table.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) durability: Durability,
    pub(crate) writers: usize,
    /// How many events a writer hands over at once.
    pub(crate) events: usize,
    /// How often a writer of the bus hands over before it waits for the first answer.
    pub(crate) window: usize,
    pub(crate) topics: Topics,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topics {
    /// All writers on one.
    One,
    /// Every writer on its own.
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

    /// What a writer hands over at once. Made anew each time, as it is for events that come in.
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

/// An engine on a database of its own, and the name of that.
pub(crate) async fn new_engine(url: &str) -> (Arc<MongoEngine>, String) {
    let name = new_database();
    let mut options = MongoOptions::at(url, prombus_bus::STATE_KINDS);
    options.database = Some(name.clone());
    (Arc::new(MongoEngine::open(&options).await.unwrap()), name)
}
