//! A topic's own settings, as they are stored.

use prombus_engine::{Durability, InvalidStateKey, StateEntry, StateKey};
use prombus_proto::Topic;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::Rate;
use crate::topics::TopicSettings;

/// Why stored settings cannot be used.
#[derive(Debug, Error)]
pub enum TopicSettingsError {
    /// Made by a newer program.
    #[error("have form {0}; this program reads up to {VERSION}: use a newer one")]
    Newer(u32),
    /// Not settings.
    #[error("cannot be read: {0}")]
    Invalid(#[from] serde_json::Error),
}

const VERSION: u32 = 1;
const PREFIX: &str = "topic/";

/// The stored form: JSON, so that other programs can read it where the engine lets them.
#[derive(Serialize, Deserialize)]
struct Form {
    v: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    durability: Option<StoredDurability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<StoredRate>,
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

/// Where the settings of all topics are kept, in the keyed state.
#[must_use]
pub const fn prefix() -> &'static [u8] {
    PREFIX.as_bytes()
}

/// What was set for a topic while a bus ran, as an entry of the keyed state says it; nothing where it
/// is about something else. Whoever reads them without a bus needs this.
pub fn read(entry: &StateEntry) -> Result<Option<(Topic, TopicSettings)>, UnusableSettings> {
    let Some(topic) = topic_at(&entry.key) else { return Ok(None) };
    match decode(&entry.value) {
        Ok(own) => Ok(Some((topic, own))),
        Err(reason) => Err(UnusableSettings { topic, reason }),
    }
}

/// Which topic's settings cannot be used, and why.
#[derive(Debug, Error)]
#[error("the settings of {topic} {reason}")]
pub struct UnusableSettings {
    /// The topic.
    pub topic: Topic,
    /// Why.
    pub reason: TopicSettingsError,
}

/// Where the settings of `topic` are kept.
pub(crate) fn key(topic: &Topic) -> Result<StateKey, InvalidStateKey> {
    StateKey::new(format!("{PREFIX}{topic}"))
}

/// Whose settings are kept at `key`.
pub(crate) fn topic_at(key: &StateKey) -> Option<Topic> {
    let name = key.as_bytes().strip_prefix(prefix())?;
    Topic::new(std::str::from_utf8(name).ok()?).ok()
}

pub(crate) fn encode(own: &TopicSettings) -> Vec<u8> {
    let form = Form {
        v: VERSION,
        durability: own.durability.map(|durability| match durability {
            Durability::Fsync => StoredDurability::Fsync,
            // Nobody asks for less.
            Durability::Buffered | Durability::Memory => StoredDurability::Buffered,
        }),
        retention_ms: own.retention_ms,
        retention_bytes: own.retention_bytes,
        limit: own
            .rate
            .map(|Rate { capacity, refill_per_sec }| StoredRate { capacity, refill_per_sec }),
    };
    serde_json::to_vec(&form).expect("a plain value always serialises into memory")
}

pub(crate) fn decode(bytes: &[u8]) -> Result<TopicSettings, TopicSettingsError> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let Versioned { v } = serde_json::from_slice(bytes)?;
    if v > VERSION {
        return Err(TopicSettingsError::Newer(v));
    }
    let form: Form = serde_json::from_slice(bytes)?;
    Ok(TopicSettings {
        durability: form.durability.map(|durability| match durability {
            StoredDurability::Fsync => Durability::Fsync,
            StoredDurability::Buffered => Durability::Buffered,
        }),
        rate: form
            .limit
            .map(|StoredRate { capacity, refill_per_sec }| Rate { capacity, refill_per_sec }),
        retention_ms: form.retention_ms,
        retention_bytes: form.retention_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first form, as it was written; it has to be read for ever.
    const FORM_1: &str = r#"{"v":1,"durability":"buffered","retention_ms":604800000,"retention_bytes":1073741824,"limit":{"capacity":5000,"refill_per_sec":2500}}"#;

    #[test]
    fn the_first_form_is_read_and_written_as_it_was() {
        let own = decode(FORM_1.as_bytes()).unwrap();
        assert_eq!(
            own,
            TopicSettings {
                durability: Some(Durability::Buffered),
                rate: Some(Rate { capacity: 5000, refill_per_sec: 2500 }),
                retention_ms: Some(604_800_000),
                retention_bytes: Some(1 << 30),
            }
        );
        assert_eq!(String::from_utf8(encode(&own)).unwrap(), FORM_1);
        let none = TopicSettings::default();
        assert_eq!(encode(&none), br#"{"v":1}"#);
        assert_eq!(decode(br#"{"v":1}"#).unwrap(), none);
    }

    #[test]
    fn a_newer_form_is_refused_by_its_number() {
        let error = decode(br#"{"v":2,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("have form 2"), "{error}");
        assert!(decode(b"nonsense").is_err());
    }

    #[test]
    fn a_key_says_whose_settings_it_has() {
        let topic = Topic::new("orders.eu").unwrap();
        assert_eq!(topic_at(&key(&topic).unwrap()), Some(topic));
        assert_eq!(topic_at(&StateKey::new("cursor/a::b/0").unwrap()), None);
        assert_eq!(topic_at(&StateKey::new("topic/Not A Topic").unwrap()), None);
    }
}
