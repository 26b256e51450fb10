//! What operators did with a dead letter: `letter/<topic>::<position>`, for as long as the letter is retained.

use prombus_engine::{StateEntry, StateKey};
use prombus_proto::limits::{MAX_NAME_BYTES, MAX_STATE_KEY_BYTES};
use prombus_proto::{Seq, Topic};
use serde::{Deserialize, Serialize};

use super::SEPARATOR;
use super::redrive::{POSITION_DIGITS, position_at};
use super::versioned::{DecodeError, Versioned};

const PREFIX: &str = "letter/";

const _: () = assert!(
    PREFIX.len() + MAX_NAME_BYTES + SEPARATOR.len() + POSITION_DIGITS <= MAX_STATE_KEY_BYTES
);

/// `topic` in its key is the one of the original, and the position is that of the letter in `dlq.<topic>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LetterRecord {
    /// The group that failed got the event again.
    #[serde(default)]
    pub(crate) redriven: bool,
    /// The letter is not listed any more.
    #[serde(default)]
    pub(crate) dropped: bool,
}

impl Versioned for LetterRecord {
    const VERSION: u32 = 1;
}

impl LetterRecord {
    pub(crate) fn prefix_of(topic: &Topic) -> Vec<u8> {
        format!("{PREFIX}{topic}{SEPARATOR}").into_bytes()
    }

    pub(crate) fn key(topic: &Topic, letter: Seq) -> StateKey {
        StateKey::new(format!("{PREFIX}{topic}{SEPARATOR}{:016x}", letter.0))
            .expect("the longest name fits into a key")
    }

    /// Returns the position of the letter that `entry` is about.
    pub(crate) fn position(entry: &StateEntry) -> Option<Seq> {
        position_at(&entry.key)
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        self.encode_versioned()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_versioned(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored records of version 1 must stay readable for ever.
    const VERSION_1: &str = r#"{"v":1,"redriven":true,"dropped":false}"#;

    #[test]
    fn reads_and_writes_version_1() {
        let record = LetterRecord::decode(VERSION_1.as_bytes()).unwrap();
        assert_eq!(record, LetterRecord { redriven: true, dropped: false });
        assert_eq!(String::from_utf8(record.encode()).unwrap(), VERSION_1);
    }

    #[test]
    fn rejects_a_newer_version_by_its_number() {
        let error = LetterRecord::decode(br#"{"v":2,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("format version 2"), "{error}");
    }
}
