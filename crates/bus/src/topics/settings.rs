//! How a bus is set up.

use std::collections::HashMap;
use std::time::Duration;

use prombus_engine::Durability;
use prombus_proto::Topic;

use crate::limits::Rate;

/// How a bus is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Each connection's limit, for its publishes and deliveries together; none if off.
    pub connection_rate: Option<Rate>,
    /// Each topic's limit, for publishes; none if off.
    pub topic_rate: Option<Rate>,
    /// What is different for some topics.
    pub topics: HashMap<Topic, TopicSettings>,
    /// How many bytes of events may wait for one connection.
    pub max_outbox_bytes: usize,
    /// What a subscription has if it does not say.
    pub subscription: SubscriptionDefaults,
    /// Within how long a gateway that dies is replaced, where several use one store.
    pub group_lease: Duration,
}

/// What is different for one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicSettings {
    /// How safe its events are when they are answered.
    pub durability: Option<Durability>,
    /// Its own limit.
    pub rate: Option<Rate>,
    /// How long it keeps its events; for ever if nobody says.
    pub retention_ms: Option<u64>,
    /// How many bytes of events it keeps; any number if nobody says.
    pub retention_bytes: Option<u64>,
}

/// What holds for one topic, whoever said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRules {
    /// How safe its events are when they are answered.
    pub durability: Durability,
    /// Its limit; none where limits are off.
    pub rate: Option<Rate>,
    /// How long it keeps its events; for ever if there is none.
    pub retention_ms: Option<u64>,
    /// How many bytes of events it keeps; any number if there is none.
    pub retention_bytes: Option<u64>,
}

/// What a subscription has if it does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionDefaults {
    /// How many events may be out at a time.
    pub max_in_flight: u32,
    /// How long a lease lasts.
    pub ack_timeout: Duration,
    /// How often an event is delivered before it goes to the dead letters.
    pub max_attempts: u32,
}

impl Settings {
    /// What holds for `topic`, where its own settings come first.
    #[must_use]
    pub fn rules(&self, topic: &Topic, own: &TopicSettings) -> TopicRules {
        let configured = self.topics.get(topic).copied().unwrap_or_default();
        let rate = own.rate.or(configured.rate);
        TopicRules {
            durability: own.durability.or(configured.durability).unwrap_or(Durability::Fsync),
            // Switched off means off for all.
            rate: self.topic_rate.map(|usual| rate.unwrap_or(usual)),
            retention_ms: own.retention_ms.or(configured.retention_ms),
            retention_bytes: own.retention_bytes.or(configured.retention_bytes),
        }
    }
}
