//! The gateway that owns a group.

use prombus_engine::{InvalidStateKey, StateKey, StateKind};
use prombus_proto::{Group, Topic};
use serde::{Deserialize, Serialize};

use super::versioned::{DecodeError, Versioned};
use super::{PARTITION, SEPARATOR};
use crate::sharing::GatewayId;

pub(super) const PREFIX: &str = "lease/";
pub(super) const KIND: StateKind = StateKind {
    prefix: PREFIX,
    separator: SEPARATOR,
    suffix: PARTITION,
    collection: None,
    fields: &[("holder", "holder"), ("epoch", "epoch")],
    marker: None,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupLease {
    /// Rises with every claim.
    pub(crate) epoch: u64,
    /// `None` once the group was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<GatewayId>,
}

impl Versioned for GroupLease {
    const VERSION: u32 = 1;
}

impl GroupLease {
    pub(crate) const fn of(holder: GatewayId, epoch: u64) -> Self {
        Self { epoch, holder: Some(holder) }
    }

    /// The lease of a released group.
    pub(crate) const fn of_nobody(epoch: u64) -> Self {
        Self { epoch, holder: None }
    }

    pub(crate) fn key(topic: &Topic, group: &Group) -> Result<StateKey, InvalidStateKey> {
        super::group_key(PREFIX, topic, group)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_versioned()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_versioned(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored leases of version 1 must stay readable for ever.
    const VERSION_1: &str = r#"{"v":1,"epoch":7,"holder":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab"}"#;

    #[test]
    fn reads_and_writes_version_1() {
        let group_lease = GroupLease::decode(VERSION_1.as_bytes()).unwrap();
        assert_eq!(group_lease.epoch, 7);
        assert_eq!(String::from_utf8(group_lease.encode()).unwrap(), VERSION_1);
        let released = GroupLease::decode(br#"{"v":1,"epoch":7}"#).unwrap();
        assert_eq!(released, GroupLease::of_nobody(7));
    }

    #[test]
    fn rejects_a_newer_version_by_its_number() {
        let error = GroupLease::decode(br#"{"v":2,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("format version 2"), "{error}");
        assert!(GroupLease::decode(b"nonsense").is_err());
    }
}
