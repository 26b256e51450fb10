//! An event as its publisher submits it.

use crate::{Event, EventId, Headers, Key, Payload, Timestamp, Topic};

/// An event to publish. The bus fills in what the publisher left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The event's data.
    pub payload: Payload,
    /// Unique within the topic; `None` lets the bus generate one.
    pub id: Option<EventId>,
    /// When it happened; `None` is the time of publishing.
    pub ts: Option<Timestamp>,
    /// The entity it is about; see [`Key`].
    pub key: Option<Key>,
    /// Small metadata beside the payload.
    pub headers: Headers,
    /// The ids of the events that caused this one.
    pub caused_by: Vec<EventId>,
    /// Free-form labels.
    pub tags: Vec<String>,
    /// The id of the session or stream it came from.
    pub sid: Option<String>,
}

impl NewEvent {
    /// Creates an event with this payload and nothing else.
    #[must_use]
    pub const fn of(payload: Payload) -> Self {
        Self {
            payload,
            id: None,
            ts: None,
            key: None,
            headers: Headers::NONE,
            caused_by: Vec::new(),
            tags: Vec::new(),
            sid: None,
        }
    }

    /// Completes the event for `topic`, with `new_id` and `now` unless it has its own id and time.
    #[must_use]
    pub fn complete(self, topic: Topic, new_id: impl FnOnce() -> EventId, now: Timestamp) -> Event {
        Event {
            id: self.id.unwrap_or_else(new_id),
            ts: self.ts.unwrap_or(now),
            topic,
            key: self.key,
            headers: self.headers,
            payload: self.payload,
            caused_by: self.caused_by,
            tags: self.tags,
            sid: self.sid,
        }
    }
}
