//! ACK: leases that are done, and what came of them.

use super::error::FrameError;
use super::event_in::{self, EventMembers, Source};
use super::ids::Ids;
use super::mark::AckMark;
use super::membership::write_members;
use super::{Members, field, write};
use crate::limits::{MAX_FRAME_EVENTS, MAX_IN_FLIGHT};
use crate::{Group, NewEvent, Topic};

/// ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Where the events are.
    pub topic: Topic,
    /// Who has done with them.
    pub group: Group,
    /// Which they are, at most [`MAX_IN_FLIGHT`].
    pub ids: Ids,
    /// Whether to mark them in the same commit.
    pub mark: Option<AckMark>,
    /// What to publish in the same commit, at most [`MAX_FRAME_EVENTS`]. Even an empty list asks
    /// for the lease to be still there.
    pub publish: Option<Vec<(Topic, NewEvent)>>,
}

impl Ack {
    pub(super) fn read(members: &Members<'_>, source: Source<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            topic: field::topic(members.topic)?,
            group: field::group(members.group)?,
            ids: Ids::read(members, MAX_IN_FLIGHT as usize)?,
            mark: AckMark::read(members)?,
            publish: read_publish(members, source)?,
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
                event_in::write_members(out, event);
                out.push(b'}');
            }
            out.push(b']');
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
