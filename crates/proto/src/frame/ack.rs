//! ACK: completes deliveries, optionally publishing and marking in the same commit.

use super::error::FrameError;
use super::event_fields::{self, EventMembers, EventReader};
use super::ids::Ids;
use super::mark::AckMark;
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::{MAX_FRAME_EVENTS, MAX_IN_FLIGHT};
use crate::{Group, NewEvent, Topic};

/// The ACK operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The topic of the events.
    pub topic: Topic,
    /// The group that finished them.
    pub group: Group,
    /// The finished events, at most [`MAX_IN_FLIGHT`], or [`MAX_FRAME_EVENTS`] if they are marked.
    pub ids: Ids,
    /// Marks the events as handled in the same commit; `None` does not mark.
    pub mark: Option<AckMark>,
    /// Events to publish in the same commit, at most [`MAX_FRAME_EVENTS`]. With a list, even an
    /// empty one, the ACK only succeeds while the leases are still valid.
    pub publish: Option<Vec<(Topic, NewEvent)>>,
}

impl Ack {
    pub(super) fn read(members: &Members<'_>, reader: EventReader<'_>) -> Result<Self, FrameError> {
        let mark = AckMark::read(members)?;
        let max_ids = if mark.is_some() { MAX_FRAME_EVENTS } else { MAX_IN_FLIGHT as usize };
        Ok(Self {
            topic: field::topic(members.topic)?,
            group: field::group(members.group)?,
            ids: Ids::read(members, max_ids)?,
            mark,
            publish: read_publish(members, reader)?,
        })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write_members(out, &self.topic, &self.group);
        self.ids.write_member(out);
        if let Some(mark) = self.mark {
            mark.write_member(out);
        }
        if let Some(publish) = &self.publish {
            write::member(out, "publish");
            out.push(b'[');
            for (index, (topic, event)) in publish.iter().enumerate() {
                write::comma(out, index);
                write::raw(out, "{\"topic\":");
                write::name(out, topic.as_str());
                event_fields::write_members(out, event);
                out.push(b'}');
            }
            out.push(b']');
        }
    }
}

fn read_publish(
    members: &Members<'_>,
    reader: EventReader<'_>,
) -> Result<Option<Vec<(Topic, NewEvent)>>, FrameError> {
    let Some(publish) = field::present(members.publish) else { return Ok(None) };
    let read = |index, cursor: &mut _| {
        let event = EventMembers::at(cursor, "publish", index)?;
        let both = || Ok((field::topic(event.topic)?, reader.event(event.payload, event.opts)?));
        both().map_err(|error: FrameError| error.within(format_args!("publish[{index}]")))
    };
    field::list("publish", "events", publish, 0..=MAX_FRAME_EVENTS, read).map(Some)
}
