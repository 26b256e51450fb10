//! An event that a group delivers again because its dead letter was redriven:
//! `redrive/<topic>::<group>::<seq>`, until the group has finished it.

use prombus_engine::{StateEntry, StateKey};
use prombus_proto::limits::{MAX_NAME_BYTES, MAX_STATE_KEY_BYTES};
use prombus_proto::{Group, Seq, Topic};
use serde::{Deserialize, Serialize};

use super::SEPARATOR;
use super::cursor::{Attempts, RetryTime};
use super::versioned::{DecodeError, Versioned};

pub(super) const PREFIX: &str = "redrive/";
pub(super) const POSITION_DIGITS: usize = 16;

const _: () = assert!(
    PREFIX.len() + 2 * MAX_NAME_BYTES + POSITION_DIGITS + 2 * SEPARATOR.len()
        <= MAX_STATE_KEY_BYTES
);

/// What the cursor would know of the event if it were not behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Redrive {
    /// The position of its dead letter, which has a copy of the event.
    pub(crate) letter: Seq,
    pub(crate) attempts: Attempts,
    /// When it is delivered again, if it failed.
    pub(crate) retry: Option<RetryTime>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    letter: Seq,
    #[serde(default)]
    deliveries: u32,
    #[serde(default)]
    failures: u16,
    #[serde(default)]
    disconnects: u16,
    /// Seconds since 1970, and how long that was ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<(u64, u64)>,
}

impl Versioned for Stored {
    const VERSION: u32 = 1;
}

impl Redrive {
    /// An event that was not delivered since its dead letter was redriven.
    pub(crate) fn of(letter: Seq) -> Self {
        Self { letter, attempts: Attempts::default(), retry: None }
    }

    /// The prefix of the keys of all redriven events of a group.
    pub(crate) fn prefix_of(topic: &Topic, group: &Group) -> String {
        format!("{PREFIX}{topic}{SEPARATOR}{group}{SEPARATOR}")
    }

    pub(crate) fn key(topic: &Topic, group: &Group, seq: Seq) -> StateKey {
        StateKey::new(format!("{}{:016x}", Self::prefix_of(topic, group), seq.0))
            .expect("the longest names fit into a key")
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let Attempts { deliveries, failures, disconnects } = self.attempts;
        let retry = self.retry.map(|retry| (retry.at_secs, retry.in_secs));
        Stored { letter: self.letter, deliveries, failures, disconnects, retry }.encode_versioned()
    }

    /// Returns the position of the event in `entry`, and what is known of it.
    pub(crate) fn read(entry: &StateEntry) -> Result<Option<(Seq, Self)>, DecodeError> {
        let Some(seq) = position_at(&entry.key) else { return Ok(None) };
        Ok(Some((seq, Self::decode(&entry.value)?)))
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Stored { letter, deliveries, failures, disconnects, retry } =
            Stored::decode_versioned(bytes)?;
        let attempts = Attempts { deliveries, failures, disconnects };
        let retry = retry.map(|(at_secs, in_secs)| RetryTime { at_secs, in_secs });
        Ok(Self { letter, attempts, retry })
    }
}

/// The prefix of the keys of all redriven events of `topic`.
pub(crate) fn prefix_of_topic(topic: &Topic) -> Vec<u8> {
    format!("{PREFIX}{topic}{SEPARATOR}").into_bytes()
}

/// Returns the position at the end of a key.
pub(super) fn position_at(key: &StateKey) -> Option<Seq> {
    let text = std::str::from_utf8(key.as_bytes()).ok()?;
    let (_, position) = text.rsplit_once(SEPARATOR)?;
    u64::from_str_radix(position, 16).ok().map(Seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored records of version 1 must stay readable for ever.
    const VERSION_1: &str =
        r#"{"v":1,"letter":7,"deliveries":3,"failures":2,"disconnects":1,"retry":[1700000025,25]}"#;

    #[test]
    fn reads_and_writes_version_1() {
        let redrive = Redrive::decode(VERSION_1.as_bytes()).unwrap();
        let attempts = Attempts { deliveries: 3, failures: 2, disconnects: 1 };
        let retry = Some(RetryTime { at_secs: 1_700_000_025, in_secs: 25 });
        assert_eq!(redrive, Redrive { letter: Seq(7), attempts, retry });
        assert_eq!(String::from_utf8(redrive.encode()).unwrap(), VERSION_1);
        assert_eq!(Redrive::decode(br#"{"v":1,"letter":7}"#).unwrap(), Redrive::of(Seq(7)));
    }

    #[test]
    fn rejects_a_newer_version_by_its_number() {
        let error = Redrive::decode(br#"{"v":2,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("format version 2"), "{error}");
    }

    #[test]
    fn keys_sort_by_position() {
        let (topic, group) = (Topic::new("orders").unwrap(), Group::new("billing").unwrap());
        let key = |seq| Redrive::key(&topic, &group, Seq(seq));
        assert!(key(9) < key(10) && key(15) < key(16) && key(16) < key(u64::MAX));
        assert_eq!(position_at(&key(4711)), Some(Seq(4711)));
        assert!(key(1).as_bytes().starts_with(Redrive::prefix_of(&topic, &group).as_bytes()));
    }
}
