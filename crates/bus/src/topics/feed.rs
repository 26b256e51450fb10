//! The events of a topic for its followers: recent ones from memory, older ones from the engine.
//!
//! Both are addressed by `seq`, so no event is missed or repeated between the two.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prombus_engine::{Engine, ReadBudget, ReadError, StoredEvent};
use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::topics::read;

/// An event as a follower gets it.
#[derive(Clone, Debug)]
pub struct FeedEvent {
    pub seq: Seq,
    pub id: EventId,
    pub ts: Timestamp,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    /// Read back from the engine: the JSON.
    Stored(bytes::Bytes),
    /// Published by this process: the JSON without the `seq`, and the publish time.
    Recent(EncodedEvent, Option<Instant>),
}

/// The feed of one topic.
#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<Recent>,
    /// The last known event, which wakes followers.
    last: watch::Sender<Seq>,
}

/// The newest events of a topic, with consecutive `seq`s.
#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<FeedEvent>,
    bytes: usize,
}

/// The bytes of recent events that a topic with followers keeps in memory.
const RECENT_BYTES: usize = 4 << 20;

impl Feed {
    pub(crate) fn new() -> Self {
        Self { recent: Mutex::default(), last: watch::Sender::new(Seq::ZERO) }
    }

    /// Returns a receiver that is notified of new events of this process. It counts as a follower.
    pub(crate) fn watch(&self) -> watch::Receiver<Seq> {
        self.last.subscribe()
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.last.receiver_count() > 0
    }

    /// Adds events that were just committed, in order, and wakes followers.
    pub(crate) fn append(
        &self,
        events: impl Iterator<Item = (Seq, EncodedEvent, Option<Instant>)>,
    ) {
        let mut last = None;
        {
            let mut recent = self.recent.lock();
            for (seq, encoded, published_at) in events {
                recent.push(FeedEvent {
                    seq,
                    id: encoded.id().clone(),
                    ts: encoded.ts(),
                    body: Body::Recent(encoded, published_at),
                });
                last = Some(seq);
            }
        }
        if let Some(last) = last {
            self.wake(last);
        }
    }

    /// Wakes followers if `last` is newer than the last known event.
    pub(crate) fn wake(&self, last: Seq) {
        self.last.send_if_modified(|known| {
            let is_new = last > *known;
            *known = last.max(*known);
            is_new
        });
    }

    /// Waits until there are no followers.
    pub(crate) async fn abandoned(&self) {
        self.last.closed().await;
    }

    /// Returns events of `topic` starting at `from`, like [`Engine::read`].
    pub(crate) async fn read(
        &self,
        engine: &Arc<dyn Engine>,
        topic: &Topic,
        from: Seq,
        budget: ReadBudget,
    ) -> Result<Vec<FeedEvent>, ReadError> {
        if let Some(events) = self.recent.lock().read(from, budget) {
            return Ok(events);
        }
        let page = read::read(engine.as_ref(), topic, from, budget).await?;
        Ok(page.events.into_iter().map(FeedEvent::from).collect())
    }

    /// Drops the recent events if there are no followers.
    pub(crate) fn clear_if_abandoned(&self) {
        if !self.has_followers() {
            *self.recent.lock() = Recent::default();
        }
    }
}

impl Recent {
    fn push(&mut self, event: FeedEvent) {
        let follows = self.events.back().is_none_or(|last| last.seq.next() == event.seq);
        if !follows {
            // Another gateway published in between: only the engine has the events without a gap.
            *self = Self::default();
        }
        self.bytes += event.json_bytes();
        self.events.push_back(event);
        while self.bytes > RECENT_BYTES && self.events.len() > 1 {
            let oldest = self.events.pop_front().expect("there is more than one");
            self.bytes -= oldest.json_bytes();
        }
    }

    /// Returns `None` if the events have to be read from the engine.
    fn read(&self, from: Seq, budget: ReadBudget) -> Option<Vec<FeedEvent>> {
        let first = self.events.front()?.seq;
        let start = usize::try_from(from.0.checked_sub(first.0)?).ok()?;
        let mut bytes = 0;
        let mut found = Vec::new();
        for event in self.events.range(start.min(self.events.len())..) {
            bytes += event.json_bytes();
            if found.len() >= budget.events || (bytes > budget.bytes && !found.is_empty()) {
                break;
            }
            found.push(event.clone());
        }
        (!found.is_empty()).then_some(found)
    }
}

impl FeedEvent {
    /// Returns an upper bound of the bytes of its JSON.
    #[must_use]
    pub fn json_bytes(&self) -> usize {
        match &self.body {
            Body::Stored(json) => json.len(),
            Body::Recent(encoded, _) => encoded.max_json_bytes(),
        }
    }

    /// Returns when it was published, or `None` if it was read back from the engine.
    pub(crate) const fn published_at(&self) -> Option<Instant> {
        match &self.body {
            Body::Stored(_) => None,
            Body::Recent(_, published_at) => *published_at,
        }
    }

    /// Appends its JSON, byte for byte as it was committed.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match &self.body {
            Body::Stored(json) => out.extend_from_slice(json),
            Body::Recent(encoded, _) => encoded.write_json(self.seq, out),
        }
    }
}

impl From<StoredEvent> for FeedEvent {
    fn from(stored: StoredEvent) -> Self {
        Self { seq: stored.seq, id: stored.id, ts: stored.ts, body: Body::Stored(stored.json) }
    }
}
