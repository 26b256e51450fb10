//! NACK: ends leases of events that failed, to be redelivered or dead-lettered.

use super::error::FrameError;
use super::ids::Ids;
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::{MAX_IN_FLIGHT, MAX_NACK_DELAY_MS, MAX_REASON_BYTES};
use crate::{Group, Topic};

/// The NACK operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The topic of the events.
    pub topic: Topic,
    /// The group that holds the leases.
    pub group: Group,
    /// The leased events, at most [`MAX_IN_FLIGHT`].
    pub ids: Ids,
    /// Why processing failed; truncated to [`MAX_REASON_BYTES`] bytes.
    pub reason: Option<String>,
    /// What follows.
    pub next: AfterNack,
}

/// What follows a NACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterNack {
    /// A redelivery; the back-off is left to the bus.
    BackOff,
    /// A redelivery after this many milliseconds, at most [`MAX_NACK_DELAY_MS`].
    DelayMs(u64),
    /// A dead letter at once.
    Dead,
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
            ids: Ids::read(members, MAX_IN_FLIGHT as usize)?,
            reason,
            next: AfterNack::read(members)?,
        })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
        self.ids.write_member(out);
        if let Some(reason) = &self.reason {
            write::member(out, "reason");
            write::text(out, reason);
        }
        match self.next {
            AfterNack::BackOff => {}
            AfterNack::DelayMs(delay_ms) => {
                write::member(out, "delay_ms");
                write::number(out, delay_ms);
            }
            AfterNack::Dead => write::raw(out, ",\"dead\":true"),
        }
    }
}

impl AfterNack {
    fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        let delay_ms = field::number("delay_ms", members.delay_ms, 0..=MAX_NACK_DELAY_MS)?;
        let dead = field::flag("dead", members.dead)?;
        match (delay_ms, dead) {
            (Some(_), true) => Err(FrameError::bad_frame("send either delay_ms or dead, not both")),
            (None, true) => Ok(Self::Dead),
            (Some(delay_ms), false) => Ok(Self::DelayMs(delay_ms)),
            (None, false) => Ok(Self::BackOff),
        }
    }
}
