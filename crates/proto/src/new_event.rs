//! What a publisher hands in.

use crate::{Event, EventId, Headers, Key, Payload, Timestamp, Topic};

/// An event to be. The bus adds what its publisher left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// What happened.
    pub payload: Payload,
    /// Its identity; the bus makes one if there is none.
    pub id: Option<EventId>,
    /// When it happened; now if nobody says.
    pub ts: Option<Timestamp>,
    /// What it is about.
    pub key: Option<Key>,
    /// Small facts beside the payload.
    pub headers: Headers,
    /// The events that led to it.
    pub caused_by: Vec<EventId>,
    /// Free labels.
    pub tags: Vec<String>,
    /// The session or stream it came from.
    pub sid: Option<String>,
}

impl NewEvent {
    /// A payload and nothing else.
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

    /// The event it becomes on `topic`, with `new_id` and `now` where it has none of its own.
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
