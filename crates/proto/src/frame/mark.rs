//! MARK: marks events as handled by a group. An ACK can carry the same.

use super::error::FrameError;
use super::ids::Ids;
use super::json::{Json, members};
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::{MAX_FRAME_EVENTS, MAX_MARK_TTL_MS, MIN_MARK_TTL_MS};
use crate::{Group, Topic};

/// The MARK operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The topic of the events.
    pub topic: Topic,
    /// The group that handled them.
    pub group: Group,
    /// The handled events, at most [`MAX_FRAME_EVENTS`].
    pub ids: Ids,
    /// How long the marks last, [`MIN_MARK_TTL_MS`] to [`MAX_MARK_TTL_MS`] milliseconds; `None` is
    /// [`DEFAULT_MARK_TTL_MS`](crate::limits::DEFAULT_MARK_TTL_MS).
    pub ttl_ms: Option<u64>,
}

/// The `mark` of an ACK: `true`, or an object with options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckMark {
    /// See [`Mark::ttl_ms`].
    pub ttl_ms: Option<u64>,
}

members! {
    AckMarkMembers { ttl_ms = "ttl_ms", }
}

impl Mark {
    pub(super) fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            topic: field::topic(members.topic)?,
            group: field::group(members.group)?,
            ids: Ids::read(members, MAX_FRAME_EVENTS)?,
            ttl_ms: read_ttl("ttl_ms", members.ttl_ms)?,
        })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
        self.ids.write_member(out);
        if let Some(ttl_ms) = self.ttl_ms {
            write::member(out, "ttl_ms");
            write::number(out, ttl_ms);
        }
    }
}

impl AckMark {
    pub(super) fn read(members: &Members<'_>) -> Result<Option<Self>, FrameError> {
        let Some(mark) = field::present(members.mark) else { return Ok(None) };
        match mark.raw() {
            "true" => Ok(Some(Self { ttl_ms: None })),
            "false" => Ok(None),
            _ if mark.cursor().is_at_object() => {
                let mut members = AckMarkMembers::default();
                members.read(&mut mark.cursor())?;
                Ok(Some(Self { ttl_ms: read_ttl("mark.ttl_ms", members.ttl_ms)? }))
            }
            _ => Err(FrameError::bad_frame("mark must be true, false or an object")),
        }
    }

    pub(super) fn write_member(self, out: &mut Vec<u8>) {
        write::member(out, "mark");
        match self.ttl_ms {
            None => write::raw(out, "true"),
            Some(ttl_ms) => {
                write::raw(out, "{\"ttl_ms\":");
                write::number(out, ttl_ms);
                out.push(b'}');
            }
        }
    }
}

fn read_ttl(name: &str, member: Option<Json<'_>>) -> Result<Option<u64>, FrameError> {
    field::number(name, member, MIN_MARK_TTL_MS..=MAX_MARK_TTL_MS)
}
