//! A group whose stored state another gateway may have changed: `changed/<topic>::<group>`. Its owner reads it again.
//! It expires once all gateways have seen it.

use prombus_engine::{Expect, StateEntry, StateKey, StateOp};
use prombus_proto::{Group, Timestamp, Topic};
use serde::{Deserialize, Serialize};

use super::SEPARATOR;
use super::deletion::Deletion;
use super::versioned::Versioned;
use crate::sharing::GatewayId;

const PREFIX: &str = "changed/";

/// The record of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupChange {
    /// The gateway that did it, and so need not be told.
    pub(crate) by: GatewayId,
}

impl Versioned for GroupChange {
    const VERSION: u32 = 1;
}

impl GroupChange {
    pub(crate) const fn prefix() -> &'static [u8] {
        PREFIX.as_bytes()
    }

    /// Returns what stores the record, with the change itself.
    pub(crate) fn put(self, topic: &Topic, group: &Group, now: Timestamp) -> Option<StateOp> {
        Some(StateOp::Put {
            key: StateKey::new(format!("{PREFIX}{topic}{SEPARATOR}{group}")).ok()?,
            value: self.encode_versioned().into(),
            expires_at: Some(Deletion::expires_at(now)),
            expect: Expect::Any,
        })
    }

    /// Returns which group was changed, and by which gateway. A record that cannot be read was written by a newer
    /// version, and names nobody.
    pub(crate) fn read(entry: &StateEntry) -> Option<((Topic, Group), Option<GatewayId>)> {
        let name = entry.key.as_bytes().strip_prefix(Self::prefix())?;
        let (topic, group) = std::str::from_utf8(name).ok()?.split_once(SEPARATOR)?;
        let names = (Topic::new(topic).ok()?, Group::new(group).ok()?);
        Some((names, Self::decode_versioned(&entry.value).ok().map(|change| change.by)))
    }
}

#[cfg(test)]
mod tests {
    use prombus_engine::Version;

    use super::*;

    #[test]
    fn reads_and_writes_version_1() {
        const VERSION_1: &str = r#"{"v":1,"by":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab"}"#;
        let change = GroupChange::decode_versioned(VERSION_1.as_bytes()).unwrap();
        let (topic, group) = (Topic::new("orders.eu").unwrap(), Group::new("billing").unwrap());
        let put = change.clone().put(&topic, &group, Timestamp(1)).unwrap();
        let StateOp::Put { key, value, .. } = put else { panic!("it is stored") };
        assert_eq!(value, VERSION_1);
        let entry = StateEntry { key, value, version: Version(1), expires_at: None };
        assert_eq!(GroupChange::read(&entry), Some(((topic, group), Some(change.by))));
    }
}
