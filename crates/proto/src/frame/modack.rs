//! MODACK: a lease that ends later, or sooner, than it was lent for.

use super::error::FrameError;
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::MAX_LEASE_MS;
use crate::{EventId, Group, Topic};

/// MODACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModAck {
    /// Where the event is.
    pub topic: Topic,
    /// Who works on it.
    pub group: Group,
    /// Which it is.
    pub id: EventId,
    /// How long the lease lasts from now, at most [`MAX_LEASE_MS`]. The bus makes at least a second of it.
    pub extend_ms: u64,
}

impl ModAck {
    pub(super) fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            topic: field::topic(members.topic)?,
            group: field::group(members.group)?,
            id: field::required_event_id("id", members.id)?,
            extend_ms: field::required_number("extend_ms", members.extend_ms, 0..=MAX_LEASE_MS)?,
        })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
        write::member(out, "id");
        write::event_id(out, &self.id);
        write::member(out, "extend_ms");
        write::number(out, self.extend_ms);
    }
}
