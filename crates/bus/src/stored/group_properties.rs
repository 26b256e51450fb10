//! What members have set for their whole group.

use prombus_engine::{InvalidStateKey, StateKey};
use prombus_proto::{Group, Topic};
use serde::{Deserialize, Serialize};

use super::SEPARATOR;
use super::versioned::{DecodeError, Versioned};

pub(super) const PREFIX: &str = "group/";

/// The properties of a group. Any gateway stores them, unlike the cursor, which only the owner does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupProperties {
    /// `None` if no member ever named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u32>,
}

impl Versioned for GroupProperties {
    const VERSION: u32 = 1;
}

impl GroupProperties {
    pub(crate) fn key(topic: &Topic, group: &Group) -> Result<StateKey, InvalidStateKey> {
        StateKey::new(format!("{PREFIX}{topic}{SEPARATOR}{group}"))
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

    /// Stored properties of version 1 must stay readable for ever.
    const VERSION_1: &str = r#"{"v":1,"max_attempts":7}"#;

    #[test]
    fn reads_and_writes_version_1() {
        let properties = GroupProperties::decode(VERSION_1.as_bytes()).unwrap();
        assert_eq!(properties, GroupProperties { max_attempts: Some(7) });
        assert_eq!(String::from_utf8(properties.encode()).unwrap(), VERSION_1);
        let unset = GroupProperties::decode(br#"{"v":1}"#).unwrap();
        assert_eq!(unset, GroupProperties::default());
    }

    #[test]
    fn rejects_a_newer_version_by_its_number() {
        let error = GroupProperties::decode(br#"{"v":2,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("format version 2"), "{error}");
    }
}
