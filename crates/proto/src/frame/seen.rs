//! SEEN: asks which events a group has marked as handled.

use super::error::FrameError;
use super::ids::Ids;
use super::membership::write_members;
use super::{Members, field};
use crate::limits::MAX_FRAME_EVENTS;
use crate::{Group, Topic};

/// The SEEN operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The topic of the events.
    pub topic: Topic,
    /// The group whose marks are looked up.
    pub group: Group,
    /// The events to look up, at most [`MAX_FRAME_EVENTS`].
    pub ids: Ids,
}

impl Seen {
    pub(super) fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            topic: field::topic(members.topic)?,
            group: field::group(members.group)?,
            ids: Ids::read(members, MAX_FRAME_EVENTS)?,
        })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
        self.ids.write_member(out);
    }
}
