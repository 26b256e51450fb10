//! The subscription that UNSUBSCRIBE, PAUSE and RESUME refer to.

use super::error::FrameError;
use super::{Members, field, write};
use crate::{Group, Topic};

/// Identifies a subscription of a connection: a connection has at most one per topic and group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The subscribed topic.
    pub topic: Topic,
    /// The consumer group that the connection is a member of.
    pub group: Group,
}

impl Membership {
    pub(super) fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        Ok(Self { topic: field::topic(members.topic)?, group: field::group(members.group)? })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
    }
}

/// Appends `,"topic":…` and `,"group":…`.
pub(super) fn write_members(out: &mut Vec<u8>, topic: &Topic, group: &Group) {
    write::member(out, "topic");
    write::name(out, topic.as_str());
    write::member(out, "group");
    write::name(out, group.as_str());
}
