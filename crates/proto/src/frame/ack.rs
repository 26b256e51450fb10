//! ACK: leases that are done, and what came of them.

use super::error::FrameError;
use super::event_in::{self, EventMembers, Source};
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::{MAX_FRAME_EVENTS, MAX_IN_FLIGHT};
use crate::{EventId, Group, NewEvent, Topic};

/// ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Where the events are.
    pub topic: Topic,
    /// Who has done with them.
    pub group: Group,
    /// Which they are.
    pub ids: AckIds,
    /// What to publish in the same commit, at most [`MAX_FRAME_EVENTS`]. Even an empty list asks
    /// for the lease to be still there.
    pub publish: Option<Vec<(Topic, NewEvent)>>,
}

/// The events of an ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AckIds {
    /// By `id`.
    One(EventId),
    /// By `ids`, 1 to [`MAX_IN_FLIGHT`].
    Many(Vec<EventId>),
}

impl AckIds {
    /// The ids, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[EventId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

impl Ack {
    pub(super) fn read(members: &Members<'_>, source: Source<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            topic: field::topic(members.topic)?,
            group: field::group(members.group)?,
            ids: AckIds::read(members)?,
            publish: read_publish(members, source)?,
        })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
        match &self.ids {
            AckIds::One(id) => {
                write::member(out, "id");
                write::event_id(out, id);
            }
            AckIds::Many(ids) => {
                write::member(out, "ids");
                out.push(b'[');
                for (index, id) in ids.iter().enumerate() {
                    write::comma(out, index);
                    write::event_id(out, id);
                }
                out.push(b']');
            }
        }
        if let Some(publish) = &self.publish {
            write::member(out, "publish");
            out.push(b'[');
            for (index, (topic, event)) in publish.iter().enumerate() {
                write::comma(out, index);
                write::raw(out, "{\"topic\":");
                write::name(out, topic.as_str());
                event_in::write_members(out, event);
                out.push(b'}');
            }
            out.push(b']');
        }
    }
}

impl AckIds {
    fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        match (field::present(members.id), field::present(members.ids)) {
            (Some(_), Some(_)) => Err(FrameError::bad_frame("either id or ids, not both")),
            (None, None) => Err(FrameError::bad_frame("id or ids is missing")),
            (Some(id), None) => Ok(Self::One(field::event_id("id", id)?)),
            (None, Some(ids)) => {
                let sizes = 1..=MAX_IN_FLIGHT as usize;
                let read = |index, cursor: &mut super::json::Cursor<'_>| {
                    field::event_id_in("ids", index, cursor.value()?)
                };
                Ok(Self::Many(field::list("ids", "event ids", ids, sizes, read)?))
            }
        }
    }
}

fn read_publish(
    members: &Members<'_>,
    source: Source<'_>,
) -> Result<Option<Vec<(Topic, NewEvent)>>, FrameError> {
    let Some(publish) = field::present(members.publish) else { return Ok(None) };
    let read = |index, cursor: &mut _| {
        let event = EventMembers::at(cursor, "publish", index)?;
        let both = || Ok((field::topic(event.topic)?, source.event(event.payload, event.opts)?));
        both().map_err(|error: FrameError| error.within(format_args!("publish[{index}]")))
    };
    field::list("publish", "events", publish, 0..=MAX_FRAME_EVENTS, read).map(Some)
}
