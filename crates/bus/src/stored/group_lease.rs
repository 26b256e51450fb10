//! Who holds a group, as it is stored.

use prombus_engine::{InvalidStateKey, StateKey};
use prombus_proto::{Group, Topic};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sharing::GatewayId;

/// Who holds a group. JSON, so that other programs can read it where the engine lets them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupLease {
    /// The version of this form.
    v: u32,
    /// Rises whenever somebody takes the group.
    pub(crate) epoch: u64,
    /// Nobody, where it was given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<GatewayId>,
}

/// Why a stored group_lease cannot be used.
#[derive(Debug, Error)]
pub(crate) enum GroupLeaseError {
    /// Made by a newer program.
    #[error("has form {0}; this program reads up to {VERSION}: use a newer one")]
    Newer(u32),
    /// Not a group_lease.
    #[error("cannot be read: {0}")]
    Invalid(#[from] serde_json::Error),
}

const VERSION: u32 = 1;

impl GroupLease {
    pub(crate) const fn of(holder: GatewayId, epoch: u64) -> Self {
        Self { v: VERSION, epoch, holder: Some(holder) }
    }

    /// One that was given back.
    pub(crate) const fn of_nobody(epoch: u64) -> Self {
        Self { v: VERSION, epoch, holder: None }
    }

    /// Where that of `group` on `topic` is kept. A group has one partition so far, 0.
    pub(crate) fn key(topic: &Topic, group: &Group) -> Result<StateKey, InvalidStateKey> {
        StateKey::new(format!("lease/{topic}::{group}/0"))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a plain value always serialises into memory")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, GroupLeaseError> {
        #[derive(Deserialize)]
        struct Form {
            v: u32,
        }
        let Form { v } = serde_json::from_slice(bytes)?;
        if v > VERSION {
            return Err(GroupLeaseError::Newer(v));
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first form, as it was written; it has to be read for ever.
    const FORM_1: &str = r#"{"v":1,"epoch":7,"holder":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab"}"#;

    #[test]
    fn the_first_form_is_read_and_written_as_it_was() {
        let group_lease = GroupLease::decode(FORM_1.as_bytes()).unwrap();
        assert_eq!(group_lease.epoch, 7);
        assert_eq!(String::from_utf8(group_lease.encode()).unwrap(), FORM_1);
        let free = GroupLease::decode(br#"{"v":1,"epoch":7}"#).unwrap();
        assert_eq!(free, GroupLease::of_nobody(7));
    }

    #[test]
    fn a_newer_form_is_refused_by_its_number() {
        let error = GroupLease::decode(br#"{"v":2,"something":"else"}"#).unwrap_err();
        assert!(error.to_string().contains("has form 2"), "{error}");
        assert!(GroupLease::decode(b"nonsense").is_err());
    }
}
