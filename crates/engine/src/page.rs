//! What reads return.

use bytes::Bytes;
use prombus_proto::{EventId, Key, Seq, Timestamp};

/// A stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its position in the topic.
    pub seq: Seq,
    /// Its timestamp.
    pub ts: Timestamp,
    /// Its id, unique within the topic.
    pub id: EventId,
    /// Its key, if the publisher set one.
    pub key: Option<Key>,
    /// Its complete JSON, byte for byte as it was committed. See [`prombus_proto::Event::decode`].
    pub json: Bytes,
}

/// Consecutive events of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In order and without gaps; empty at the end of the topic.
    pub events: Vec<StoredEvent>,
}

/// How much one read may return. The first event is returned even if it exceeds the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBudget {
    /// The maximum number of events.
    pub events: usize,
    /// The maximum number of bytes of JSON.
    pub bytes: usize,
}

impl ReadBudget {
    /// Creates a budget of `events` events and at most 1 MiB.
    #[must_use]
    pub const fn of_events(events: usize) -> Self {
        Self { events, bytes: 1 << 20 }
    }

    /// Creates a budget of `bytes` bytes and any number of events.
    #[must_use]
    pub const fn of_bytes(bytes: usize) -> Self {
        Self { events: usize::MAX, bytes }
    }
}

/// The retained range of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first retained event; equal to `next` if there is none.
    pub first: Seq,
    /// The `seq` that the next event will get.
    pub next: Seq,
    /// The approximate number of bytes that the events take in storage.
    pub bytes: u64,
}

impl Bounds {
    /// The bounds of a topic that never had an event.
    pub const EMPTY: Bounds = Bounds { first: Seq::FIRST, next: Seq::FIRST, bytes: 0 };

    /// Returns the `seq` of the last event, also if it was dropped; [`Seq::ZERO`] if the topic never
    /// had one.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.next.previous()
    }

    /// Returns the number of retained events.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.next.0 - self.first.0
    }
}
