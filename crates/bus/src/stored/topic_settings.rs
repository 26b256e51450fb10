//! The settings of a topic that were changed at run time.

use prombus_engine::{Durability, InvalidStateKey, StateEntry, StateKey};
use prombus_proto::Topic;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::versioned::{DecodeError, Versioned};
use crate::limits::Rate;
use crate::topics::TopicSettings;

const PREFIX: &str = "topic/";

#[derive(Serialize, Deserialize)]
struct StoredSettings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    durability: Option<StoredDurability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<StoredRate>,
}

impl Versioned for StoredSettings {
    const VERSION: u32 = 1;
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredDurability {
    Fsync,
    Buffered,
}

#[derive(Serialize, Deserialize)]
struct StoredRate {
    capacity: u64,
    refill_per_sec: u64,
}

/// The prefix of the keys of all topics' settings.
#[must_use]
pub const fn prefix() -> &'static [u8] {
    PREFIX.as_bytes()
}

/// Reads the settings in `entry`, for programs without a running bus. Returns `None` if the entry
/// holds something else.
pub fn read(entry: &StateEntry) -> Result<Option<(Topic, TopicSettings)>, UnusableSettings> {
    let Some(topic) = topic_at(&entry.key) else { return Ok(None) };
    match decode(&entry.value) {
        Ok(own) => Ok(Some((topic, own))),
        Err(reason) => Err(UnusableSettings { topic, reason }),
    }
}

#[derive(Debug, Error)]
#[error("the settings of {topic} {reason}")]
pub struct UnusableSettings {
    pub topic: Topic,
    pub reason: DecodeError,
}

pub(crate) fn key(topic: &Topic) -> Result<StateKey, InvalidStateKey> {
    StateKey::new(format!("{PREFIX}{topic}"))
}

/// Returns the topic in `key`, or `None` if it is not the key of settings.
pub(crate) fn topic_at(key: &StateKey) -> Option<Topic> {
    let name = key.as_bytes().strip_prefix(prefix())?;
    Topic::new(std::str::from_utf8(name).ok()?).ok()
}

pub(crate) fn encode(own: &TopicSettings) -> Vec<u8> {
    let stored = StoredSettings {
        durability: own.durability.map(|durability| match durability {
            Durability::Fsync => StoredDurability::Fsync,
            // A topic cannot be configured with less.
            Durability::Buffered | Durability::Memory => StoredDurability::Buffered,
        }),
        retention_ms: own.retention_ms,
        retention_bytes: own.retention_bytes,
        limit: own
            .rate
            .map(|Rate { capacity, refill_per_sec }| StoredRate { capacity, refill_per_sec }),
    };
    stored.encode_versioned()
}

pub(crate) fn decode(bytes: &[u8]) -> Result<TopicSettings, DecodeError> {
    let stored = StoredSettings::decode_versioned(bytes)?;
    Ok(TopicSettings {
        durability: stored.durability.map(|durability| match durability {
            StoredDurability::Fsync => Durability::Fsync,
            StoredDurability::Buffered => Durability::Buffered,
        }),
        rate: stored
            .limit
            .map(|StoredRate { capacity, refill_per_sec }| Rate { capacity, refill_per_sec }),
        retention_ms: stored.retention_ms,
        retention_bytes: stored.retention_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored settings of version 1 must stay readable for ever.
    const VERSION_1: &str = r#"{"v":1,"durability":"buffered","retention_ms":604800000,"retention_bytes":1073741824,"limit":{"capacity":5000,"refill_per_sec":2500}}"#;

    #[test]
    fn reads_and_writes_version_1() {
        let own = decode(VERSION_1.as_bytes()).unwrap();
        assert_eq!(
            own,
            TopicSettings {
                durability: Some(Durability::Buffered),
                rate: Some(Rate { capacity: 5000, refill_per_sec: 2500 }),
                retention_ms: Some(604_800_000),
                retention_bytes: Some(1 << 30),
            }
        );
        assert_eq!(String::from_utf8(encode(&own)).unwrap(), VERSION_1);
        let none = TopicSettings::default();
        assert_eq!(encode(&none), br#"{"v":1}"#);
        assert_eq!(decode(br#"{"v":1}"#).unwrap(), none);
    }

    #[test]
    fn rejects_a_newer_version_by_its_number() {
        let error = decode(br#"{"v":2,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("format version 2"), "{error}");
        assert!(decode(b"nonsense").is_err());
    }

    #[test]
    fn a_key_names_the_topic() {
        let topic = Topic::new("orders.eu").unwrap();
        assert_eq!(topic_at(&key(&topic).unwrap()), Some(topic));
        assert_eq!(topic_at(&StateKey::new("cursor/a::b/0").unwrap()), None);
        assert_eq!(topic_at(&StateKey::new("topic/Not A Topic").unwrap()), None);
    }
}
