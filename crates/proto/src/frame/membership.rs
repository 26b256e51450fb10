//! UNSUBSCRIBE, PAUSE and RESUME: which subscription of this connection.

use super::error::FrameError;
use super::{Members, field, write};
use crate::{Group, Topic};

/// A subscription, by what it follows and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// What it follows.
    pub topic: Topic,
    /// For whom.
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
