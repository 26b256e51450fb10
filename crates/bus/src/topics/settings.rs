//! The settings of a bus and its topics.

use std::collections::HashMap;
use std::time::Duration;

use prombus_engine::Durability;
use prombus_proto::{NamePattern, Topic};

use crate::groups::RetryDelays;
use crate::limits::{CensusLimits, Rate};
use crate::memory::MemoryLimits;
use crate::spans::SpanSettings;

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
    /// Settings of individual topics, and of all topics whose names match a pattern.
    pub topics: ConfiguredTopics,
    /// The limit of a delivery queue.
    pub max_outbox_bytes: usize,
    pub memory: MemoryLimits,
    pub subscription: SubscriptionDefaults,
    /// How long events that fail wait for their redelivery.
    pub retry: RetryDelays,
    /// How long a group waits for a dead gateway before another one takes over.
    pub group_lease: Duration,
    /// `None` turns spans off.
    pub spans: Option<SpanSettings>,
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

impl TopicRules {
    pub(crate) const fn limit_retention(&self) -> bool {
        self.retention_ms.is_some() || self.retention_bytes.is_some()
    }
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

/// The settings of topics in the configuration.
#[derive(Clone, Debug, Default)]
pub struct ConfiguredTopics {
    by_name: HashMap<Topic, TopicSettings>,
    /// The most specific ones first.
    patterns: Vec<(NamePattern, TopicSettings)>,
}

impl ConfiguredTopics {
    /// Of two patterns that are equally specific, the one that comes first wins.
    #[must_use]
    pub fn new(
        by_name: HashMap<Topic, TopicSettings>,
        mut patterns: Vec<(NamePattern, TopicSettings)>,
    ) -> Self {
        patterns.sort_by(|(one, _), (other, _)| other.cmp_specificity(one));
        Self { by_name, patterns }
    }

    /// Returns the topics that have settings by their name.
    pub fn names(&self) -> impl Iterator<Item = &Topic> {
        self.by_name.keys()
    }

    pub(crate) fn names_contain(&self, topic: &Topic) -> bool {
        self.by_name.contains_key(topic)
    }

    /// Returns `true` if topics that match a pattern are retained for some time only, or up to some size.
    pub(crate) fn limit_retention_by_pattern(&self) -> bool {
        self.patterns.iter().any(|(_, settings)| {
            settings.retention_ms.is_some() || settings.retention_bytes.is_some()
        })
    }

    /// Returns the settings of `topic`: each from its name, or else from the most specific pattern that has it.
    fn settings_of(&self, topic: &Topic) -> TopicSettings {
        let by_name = self.by_name.get(topic).copied().unwrap_or_default();
        let matching = self.patterns.iter().filter(|(pattern, _)| pattern.matches(topic.as_str()));
        matching.fold(by_name, |found, (_, settings)| found.or(settings))
    }
}

impl FromIterator<(Topic, TopicSettings)> for ConfiguredTopics {
    fn from_iter<I: IntoIterator<Item = (Topic, TopicSettings)>>(by_name: I) -> Self {
        Self { by_name: by_name.into_iter().collect(), patterns: Vec::new() }
    }
}

impl TopicSettings {
    /// Takes from `other` what is not set here.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            durability: self.durability.or(other.durability),
            rate: self.rate.or(other.rate),
            retention_ms: self.retention_ms.or(other.retention_ms),
            retention_bytes: self.retention_bytes.or(other.retention_bytes),
        }
    }
}

impl Settings {
    /// Returns the effective settings of `topic`. `own` takes precedence over the configuration.
    #[must_use]
    pub fn rules(&self, topic: &Topic, own: &TopicSettings) -> TopicRules {
        let TopicSettings { durability, rate, retention_ms, retention_bytes } =
            own.or(&self.topics.settings_of(topic));
        TopicRules {
            durability: durability.unwrap_or(Durability::Fsync),
            // Limits that are off are off for every topic.
            rate: self.topic_rate.map(|default| rate.unwrap_or(default)),
            retention_ms,
            retention_bytes,
        }
    }
}
