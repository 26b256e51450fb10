//! The settings of a bus and its topics.

use std::collections::HashMap;
use std::time::Duration;

use prombus_engine::Durability;
use prombus_proto::Topic;

use crate::groups::RetryDelays;
use crate::limits::{CensusLimits, Rate};
use crate::memory::MemoryLimits;

#[derive(Clone, Debug)]
pub struct Settings {
    /// The rate limit of each connection, for its publishes and deliveries together. `None` turns it off.
    pub connection_rate: Option<Rate>,
    /// The bytes that each connection may publish per second, if it has a rate limit. `None` is any number.
    pub connection_bytes_per_sec: Option<u64>,
    /// The rate limit of all connections of one principal together. `None` turns it off.
    pub principal_rate: Option<Rate>,
    /// How many topics and groups may be created. `None` is any number.
    pub max_counts: Option<CensusLimits>,
    /// The default rate limit of publishes to a topic. `None` turns the limits of all topics off.
    pub topic_rate: Option<Rate>,
    /// Settings of individual topics.
    pub topics: HashMap<Topic, TopicSettings>,
    /// The limit of a delivery queue.
    pub max_outbox_bytes: usize,
    pub memory: MemoryLimits,
    pub subscription: SubscriptionDefaults,
    /// How long events that fail wait for their redelivery.
    pub retry: RetryDelays,
    /// How long a group waits for a dead gateway before another one takes over.
    pub group_lease: Duration,
}

/// Settings of one topic. `None` is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicSettings {
    pub durability: Option<Durability>,
    pub rate: Option<Rate>,
    pub retention_ms: Option<u64>,
    pub retention_bytes: Option<u64>,
}

/// The effective settings of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRules {
    /// The durability of an event when its publish is acknowledged.
    pub durability: Durability,
    /// `None` if limits are off.
    pub rate: Option<Rate>,
    /// `None` retains events forever.
    pub retention_ms: Option<u64>,
    /// `None` retains any number of bytes.
    pub retention_bytes: Option<u64>,
}

/// Options of subscriptions that do not set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionDefaults {
    /// The number of events on lease at a time.
    pub max_in_flight: u32,
    /// The duration of a lease.
    pub ack_timeout: Duration,
    /// Failures of an event before it becomes a dead letter, in groups for which nobody named a number.
    pub max_attempts: u32,
}

impl Settings {
    /// Returns the effective settings of `topic`. `own` takes precedence over the configuration.
    #[must_use]
    pub fn rules(&self, topic: &Topic, own: &TopicSettings) -> TopicRules {
        let configured = self.topics.get(topic).copied().unwrap_or_default();
        let rate = own.rate.or(configured.rate);
        TopicRules {
            durability: own.durability.or(configured.durability).unwrap_or(Durability::Fsync),
            // Limits that are off are off for every topic.
            rate: self.topic_rate.map(|default| rate.unwrap_or(default)),
            retention_ms: own.retention_ms.or(configured.retention_ms),
            retention_bytes: own.retention_bytes.or(configured.retention_bytes),
        }
    }
}
