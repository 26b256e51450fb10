//! PUBLISH: stores one event, or several atomically.

use super::error::FrameError;
use super::event_fields::{self, EventMembers, EventReader};
use super::{Members, field, write};
use crate::limits::MAX_FRAME_EVENTS;
use crate::{NewEvent, Topic};

/// The PUBLISH operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The topic to append to.
    pub topic: Topic,
    /// One event or several; several are stored all or none.
    pub events: PublishEvents,
}

/// The events of a PUBLISH. The two forms have different answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishEvents {
    /// From `payload`; the answer has `id` and `seq`.
    One(NewEvent),
    /// From `events`, 1 to [`MAX_FRAME_EVENTS`]; the answer has `results`.
    Many(Vec<NewEvent>),
}

impl PublishEvents {
    /// Returns the events in the order of the frame.
    #[must_use]
    pub fn as_slice(&self) -> &[NewEvent] {
        match self {
            Self::One(event) => std::slice::from_ref(event),
            Self::Many(events) => events,
        }
    }
}

impl Publish {
    // Inlined into its only caller: the result is too large to move cheaply.
    #[inline]
    pub(super) fn read(members: &Members<'_>, reader: EventReader<'_>) -> Result<Self, FrameError> {
        let topic = field::topic(members.topic)?;
        let events = match (members.payload, field::present(members.events)) {
            (Some(_), Some(_)) => {
                return Err(FrameError::bad_frame("send either payload or events, not both"));
            }
            (None, None) => return Err(FrameError::bad_frame("payload or events is missing")),
            (payload, None) => PublishEvents::One(reader.event(payload, members.opts)?),
            (None, Some(events)) => {
                let sizes = 1..=MAX_FRAME_EVENTS;
                let read = |index, cursor: &mut _| {
                    let event = EventMembers::at(cursor, "events", index)?;
                    let within = |error: FrameError| error.within(format_args!("events[{index}]"));
                    reader.event(event.payload, event.opts).map_err(within)
                };
                PublishEvents::Many(field::list("events", "events", events, sizes, read)?)
            }
        };
        Ok(Self { topic, events })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write::member(out, "topic");
        write::name(out, self.topic.as_str());
        match &self.events {
            PublishEvents::One(event) => event_fields::write_members(out, event),
            PublishEvents::Many(events) => {
                write::member(out, "events");
                out.push(b'[');
                for (index, event) in events.iter().enumerate() {
                    write::comma(out, index);
                    let opening = out.len();
                    event_fields::write_members(out, event);
                    // Overwrites the first member's comma.
                    out[opening] = b'{';
                    out.push(b'}');
                }
                out.push(b']');
            }
        }
    }
}
