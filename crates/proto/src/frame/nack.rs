//! NACK: returns a lease so that the event is redelivered.

use super::error::FrameError;
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::{MAX_NACK_DELAY_MS, MAX_REASON_BYTES};
use crate::{EventId, Group, Topic};

/// The NACK operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The topic of the event.
    pub topic: Topic,
    /// The group that holds the lease.
    pub group: Group,
    /// The leased event.
    pub id: EventId,
    /// Why processing failed; truncated to [`MAX_REASON_BYTES`] bytes.
    pub reason: Option<String>,
    /// The wait before redelivery in milliseconds, at most [`MAX_NACK_DELAY_MS`]; `None` leaves the
    /// back-off to the bus.
    pub delay_ms: Option<u64>,
}

impl Nack {
    pub(super) fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        let reason = match field::present(members.reason) {
            Some(reason) => {
                let reason = field::text("reason", reason)?;
                Some(reason[..reason.floor_char_boundary(MAX_REASON_BYTES)].to_owned())
            }
            None => None,
        };
        Ok(Self {
            topic: field::topic(members.topic)?,
            group: field::group(members.group)?,
            id: field::required_event_id("id", members.id)?,
            reason,
            delay_ms: field::number("delay_ms", members.delay_ms, 0..=MAX_NACK_DELAY_MS)?,
        })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
        write::member(out, "id");
        write::event_id(out, &self.id);
        if let Some(reason) = &self.reason {
            write::member(out, "reason");
            write::text(out, reason);
        }
        if let Some(delay_ms) = self.delay_ms {
            write::member(out, "delay_ms");
            write::number(out, delay_ms);
        }
    }
}
