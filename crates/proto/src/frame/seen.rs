//! SEEN: which events a group has handled, by its marks.

use super::error::FrameError;
use super::ids::Ids;
use super::membership::write_members;
use super::{Members, field};
use crate::limits::MAX_FRAME_EVENTS;
use crate::{Group, Topic};

/// SEEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where the events are.
    pub topic: Topic,
    /// Who may have handled them.
    pub group: Group,
    /// Which they are, at most [`MAX_FRAME_EVENTS`].
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
