//! PUBLISH: one event, or several of which all are stored or none.

use super::error::FrameError;
use super::event_in::{self, EventMembers, Source};
use super::{Members, field, write};
use crate::limits::MAX_FRAME_EVENTS;
use crate::{NewEvent, Topic};

/// PUBLISH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Where to.
    pub topic: Topic,
    /// What.
    pub events: PublishEvents,
}

/// The events of a PUBLISH. The two forms are answered differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishEvents {
    /// By `payload`: answered with `id` and `seq`.
    One(NewEvent),
    /// By `events`, 1 to [`MAX_FRAME_EVENTS`]: answered with `results`.
    Many(Vec<NewEvent>),
}

impl PublishEvents {
    /// The events, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[NewEvent] {
        match self {
            Self::One(event) => std::slice::from_ref(event),
            Self::Many(events) => events,
        }
    }
}

impl Publish {
    /// A part of its only caller: it is too large to be handed on.
    #[inline]
    pub(super) fn read(members: &Members<'_>, source: Source<'_>) -> Result<Self, FrameError> {
        let topic = field::topic(members.topic)?;
        let events = match (members.payload, field::present(members.events)) {
            (Some(_), Some(_)) => {
                return Err(FrameError::bad_frame("either payload or events, not both"));
            }
            (None, None) => return Err(FrameError::bad_frame("payload or events is missing")),
            (payload, None) => PublishEvents::One(source.event(payload, members.opts)?),
            (None, Some(events)) => {
                let sizes = 1..=MAX_FRAME_EVENTS;
                let read = |index, cursor: &mut _| {
                    let event = EventMembers::at(cursor, "events", index)?;
                    let place = |error: FrameError| error.within(format_args!("events[{index}]"));
                    source.event(event.payload, event.opts).map_err(place)
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
            PublishEvents::One(event) => event_in::write_members(out, event),
            PublishEvents::Many(events) => {
                write::member(out, "events");
                out.push(b'[');
                for (index, event) in events.iter().enumerate() {
                    write::comma(out, index);
                    let opening = out.len();
                    event_in::write_members(out, event);
                    // The first member's comma becomes the bracket.
                    out[opening] = b'{';
                    out.push(b'}');
                }
                out.push(b']');
            }
        }
    }
}
