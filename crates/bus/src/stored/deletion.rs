//! A topic or group that was deleted, for the other gateways of a shared store: `ended/<topic>` or
//! `ended/<topic>::<group>`. It expires once all of them have seen it.

use prombus_engine::{InvalidStateKey, StateEntry, StateKey};
use prombus_proto::frame::EndReason;
use prombus_proto::{Group, Timestamp, Topic};
use serde::{Deserialize, Serialize};

use super::SEPARATOR;
use super::versioned::Versioned;
use crate::sharing::GatewayId;

const PREFIX: &str = "ended/";
/// Expiry goes by wall clocks, so this is far longer than the clocks of gateways may differ.
const EXPIRES_AFTER_MS: u64 = 10 * 60 * 1000;

/// What was deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Deleted {
    Topic(Topic),
    Group(Topic, Group),
}

/// The record of a deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deletion {
    /// The gateway that did it, and so need not be told.
    pub(crate) by: GatewayId,
}

impl Versioned for Deletion {
    const VERSION: u32 = 1;
}

impl Deleted {
    /// Returns `true` if a group is part of it.
    pub(crate) fn contains(&self, topic: &Topic, group: &Group) -> bool {
        match self {
            Deleted::Topic(deleted) => deleted == topic,
            Deleted::Group(of, deleted) => of == topic && deleted == group,
        }
    }

    /// Why subscriptions to it end.
    pub(crate) const fn reason(&self) -> EndReason {
        match self {
            Deleted::Topic(_) => EndReason::TopicDeleted,
            Deleted::Group(..) => EndReason::GroupDeleted,
        }
    }

    pub(crate) fn key(&self) -> Result<StateKey, InvalidStateKey> {
        StateKey::new(match self {
            Deleted::Topic(topic) => format!("{PREFIX}{topic}"),
            Deleted::Group(topic, group) => format!("{PREFIX}{topic}{SEPARATOR}{group}"),
        })
    }

    fn at(key: &StateKey) -> Option<Self> {
        let text = std::str::from_utf8(key.as_bytes().strip_prefix(PREFIX.as_bytes())?).ok()?;
        Some(match text.split_once(SEPARATOR) {
            None => Deleted::Topic(Topic::new(text).ok()?),
            Some((topic, group)) => {
                Deleted::Group(Topic::new(topic).ok()?, Group::new(group).ok()?)
            }
        })
    }
}

impl Deletion {
    pub(crate) const fn prefix() -> &'static [u8] {
        PREFIX.as_bytes()
    }

    /// Returns when a record that is stored `now` expires.
    pub(crate) fn expires_at(now: Timestamp) -> Timestamp {
        now.plus_ms(EXPIRES_AFTER_MS)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_versioned()
    }

    /// Returns what was deleted, and by which gateway. A record that cannot be read was written by a newer
    /// version, and names nobody.
    pub(crate) fn read(entry: &StateEntry) -> Option<(Deleted, Option<GatewayId>)> {
        let deleted = Deleted::at(&entry.key)?;
        Some((deleted, Self::decode_versioned(&entry.value).ok().map(|deletion| deletion.by)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_what_was_deleted() {
        let (topic, group) = (Topic::new("orders.eu").unwrap(), Group::new("billing").unwrap());
        for deleted in [Deleted::Topic(topic.clone()), Deleted::Group(topic.clone(), group.clone())]
        {
            assert_eq!(Deleted::at(&deleted.key().unwrap()), Some(deleted.clone()));
            assert!(deleted.contains(&topic, &group));
        }
        let other = Group::new("other").unwrap();
        assert!(Deleted::Topic(topic.clone()).contains(&topic, &other));
        assert!(!Deleted::Group(topic.clone(), group).contains(&topic, &other));
        assert_eq!(Deleted::at(&StateKey::new("topic/orders.eu").unwrap()), None);
    }

    #[test]
    fn reads_and_writes_version_1() {
        const VERSION_1: &str = r#"{"v":1,"by":"0190f5e4-8d4b-7c3a-9f2e-0123456789ab"}"#;
        let deletion = Deletion::decode_versioned(VERSION_1.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(deletion.encode()).unwrap(), VERSION_1);
    }
}
