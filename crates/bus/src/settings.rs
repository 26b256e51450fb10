//! How a bus is set up.

use std::collections::HashMap;
use std::time::Duration;

use prombus_engine::{Durability, Retention};
use prombus_proto::Topic;

use crate::token_bucket::Rate;

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
}

/// What is different for one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicSettings {
    /// How safe its events are when they are answered.
    pub durability: Option<Durability>,
    /// Its own limit.
    pub rate: Option<Rate>,
    /// What it keeps; everything if nobody says. Its revision is set by the bus.
    pub retention: Option<Retention>,
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
    pub(crate) fn durability(&self, topic: &Topic) -> Durability {
        self.topics.get(topic).and_then(|own| own.durability).unwrap_or(Durability::Fsync)
    }

    pub(crate) fn topic_rate(&self, topic: &Topic) -> Option<Rate> {
        // Switched off means off for all.
        let usual = self.topic_rate?;
        Some(self.topics.get(topic).and_then(|own| own.rate).unwrap_or(usual))
    }
}
