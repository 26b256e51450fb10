//! What reading gives.

use bytes::Bytes;
use prombus_proto::{EventId, Key, Seq, Timestamp};

/// An event as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place.
    pub seq: Seq,
    /// Its time.
    pub ts: Timestamp,
    /// Its identity.
    pub id: EventId,
    /// Its key.
    pub key: Option<Key>,
    /// Its JSON, the bytes that were made when it was committed.
    pub json: Bytes,
}

/// Some events in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In order, without gaps.
    pub events: Vec<StoredEvent>,
}

/// How much one read may return. At least one event is returned if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBudget {
    /// The most events.
    pub events: usize,
    /// The most bytes of JSON.
    pub bytes: usize,
}

impl ReadBudget {
    /// A budget of so many events and at most 1 MiB.
    #[must_use]
    pub const fn of_events(events: usize) -> Self {
        Self { events, bytes: 1 << 20 }
    }

    /// A budget of so many bytes.
    #[must_use]
    pub const fn of_bytes(bytes: usize) -> Self {
        Self { events: usize::MAX, bytes }
    }
}

/// The ends of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first event kept; equal to `next` where none is.
    pub first: Seq,
    /// What the next event gets.
    pub next: Seq,
    /// About how many bytes of storage the events take.
    pub bytes: u64,
}

impl Bounds {
    /// A topic that never had an event.
    pub const EMPTY: Bounds = Bounds { first: Seq::FIRST, next: Seq::FIRST, bytes: 0 };

    /// The last event, or [`Seq::ZERO`] if there never was one.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.next.previous()
    }

    /// How many events are kept.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.next.0 - self.first.0
    }
}
