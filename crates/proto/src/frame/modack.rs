//! MODACK: moves the deadline of a lease.

use super::error::FrameError;
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::MAX_LEASE_MS;
use crate::{EventId, Group, Topic};

/// The MODACK operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModAck {
    /// The topic of the event.
    pub topic: Topic,
    /// The group that holds the lease.
    pub group: Group,
    /// The leased event.
    pub id: EventId,
    /// The new deadline, in milliseconds from now, at most [`MAX_LEASE_MS`]. The bus raises values
    /// below one second to one second.
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
