//! The events of a topic for its followers: recent ones from memory, older ones from the engine.
//!
//! Both are addressed by `seq`, so no event is missed or repeated between the two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use memchr::memmem;
use parking_lot::Mutex;
use prombus_engine::{Engine, ReadBudget, ReadError, StoredEvent};
use prombus_proto::{EncodedEvent, Event, EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

use crate::memory::allocated;
use crate::topics::feed_memory::FeedMemory;
use crate::topics::read;
use crate::topics::recent::Recent;

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
    recent: Arc<Mutex<Recent>>,
    memory: Arc<FeedMemory>,
    /// The last known event, which wakes followers.
    last: watch::Sender<Seq>,
    /// Counts the deletions of the topic. Changes only while `last` is locked.
    deletions: AtomicU64,
}

impl Feed {
    pub(crate) fn new(memory: Arc<FeedMemory>) -> Self {
        let recent = Arc::new(Mutex::new(Recent::new(memory.share())));
        Self { recent, memory, last: watch::Sender::new(Seq::ZERO), deletions: AtomicU64::new(0) }
    }

    /// Returns a receiver that is notified of new events of this process. It counts as a follower.
    pub(crate) fn watch(&self) -> watch::Receiver<Seq> {
        self.last.subscribe()
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.last.receiver_count() > 0
    }

    /// Adds events that were just committed, in order. [`Feed::wake`] tells followers of them.
    pub(crate) fn append(
        &self,
        events: impl Iterator<Item = (Seq, EncodedEvent, Option<Instant>)>,
    ) {
        let mut is_empty = true;
        let new = events.map(|(seq, encoded, published_at)| {
            is_empty = false;
            FeedEvent {
                seq,
                id: encoded.id().clone(),
                ts: encoded.ts(),
                body: Body::Recent(encoded, published_at),
            }
        });
        let memory = &self.memory;
        let is_new = self.recent.lock().append(new, memory.max_feed_bytes(), memory.next_use());
        if is_empty {
            return;
        }
        if is_new {
            memory.add(&self.recent);
        }
        // The last follower may have left, and cleared the feed before these events.
        self.clear_if_abandoned();
        memory.make_room();
    }

    /// Wakes followers if `last` is newer than the last known event.
    pub(crate) fn wake(&self, last: Seq) {
        self.last.send_if_modified(|known| {
            let is_new = last > *known;
            *known = last.max(*known);
            is_new
        });
    }

    /// Like [`Feed::wake`], unless the topic was deleted since `deletions` was read: `last` may be a position
    /// from before that.
    pub(crate) fn wake_unless_deleted(&self, last: Seq, deletions: u64) {
        self.last.send_if_modified(|known| {
            let is_new = last > *known && self.deletions() == deletions;
            if is_new {
                *known = last;
            }
            is_new
        });
    }

    /// Returns how often the topic was deleted. Followers end when that changes.
    pub(crate) fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Relaxed)
    }

    /// Forgets everything about a topic that was deleted, and wakes its followers. Positions may start again.
    pub(crate) fn reset(&self) {
        self.recent.lock().clear();
        self.last.send_modify(|known| {
            self.deletions.fetch_add(1, Ordering::Relaxed);
            *known = Seq::ZERO;
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
        let recent = self.recent.lock().read(from, budget, || self.memory.next_use());
        if let Some(events) = recent {
            return Ok(events);
        }
        let page = read::read(engine.as_ref(), topic, from, budget).await?;
        Ok(page.events.into_iter().map(FeedEvent::from).collect())
    }

    /// Drops the recent events below `first`, which were removed from the topic.
    pub(crate) fn trim(&self, first: Seq) {
        self.recent.lock().drop_below(first);
    }

    /// Drops the recent events if there are no followers.
    pub(crate) fn clear_if_abandoned(&self) {
        if !self.has_followers() {
            self.recent.lock().clear();
        }
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

    /// Returns the bytes that it has allocated, if nobody else has its JSON.
    pub(crate) fn allocated_bytes(&self) -> usize {
        // An id that is not a UUID is text of its own.
        let text =
            |id: &EventId| id.as_uuid().map_or_else(|| allocated(id.as_bytes().len()), |_| 0);
        match &self.body {
            Body::Stored(json) => allocated(json.len()) + text(&self.id),
            Body::Recent(encoded, _) => {
                let key = encoded.key().map_or(0, |key| allocated(key.as_str().len()));
                let counts = 2 * size_of::<usize>();
                allocated(counts + encoded.max_json_bytes()) + key + 2 * text(&self.id)
            }
        }
    }

    /// Returns when it was published, or `None` if it was read back from the engine.
    pub(crate) const fn published_at(&self) -> Option<Instant> {
        match &self.body {
            Body::Stored(_) => None,
            Body::Recent(_, published_at) => *published_at,
        }
    }

    /// Returns the value of the header `name`, which needs no escapes in JSON. Parses the event if its JSON contains
    /// the name at all.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let json = match &self.body {
            Body::Stored(json) => json.as_ref(),
            Body::Recent(encoded, _) => encoded.json_after_seq(),
        };
        memmem::find(json, name.as_bytes())?;
        let mut json = Vec::new();
        self.write_json(&mut json);
        let (_, event) = Event::decode(&json).ok()?;
        event.headers.get(name).map(str::to_owned)
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
