//! A topic's events for those who follow it: the recent ones from memory, older ones from the
//! engine, told apart by `seq` alone, so that nothing is missed or doubled between the two.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prombus_engine::{Engine, ReadBudget, ReadError, StoredEvent};
use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;

/// An event on its way to a follower.
#[derive(Clone, Debug)]
pub struct FeedEvent {
    /// Its place.
    pub seq: Seq,
    /// Its identity.
    pub id: EventId,
    /// Its time.
    pub ts: Timestamp,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Stored(bytes::Bytes),
    /// From this process: its JSON but for the `seq`, and when the bus took it.
    Recent(EncodedEvent, Option<Instant>),
}

/// The way to follow one topic.
#[derive(Debug)]
pub(crate) struct Feed {
    recent: Mutex<Recent>,
    /// The last event there is, for those who wait.
    last: watch::Sender<Seq>,
}

/// The newest events, without gaps.
#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<FeedEvent>,
    bytes: usize,
}

/// How much of a topic is kept in memory while somebody follows it.
const RECENT_BYTES: usize = 4 << 20;

impl Feed {
    pub(crate) fn new() -> Self {
        Self { recent: Mutex::default(), last: watch::Sender::new(Seq::ZERO) }
    }

    /// Wakes whoever waits when there is something new, from here.
    pub(crate) fn watch(&self) -> watch::Receiver<Seq> {
        self.last.subscribe()
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.last.receiver_count() > 0
    }

    /// Takes events that were just committed, in order.
    pub(crate) fn append(
        &self,
        events: impl Iterator<Item = (Seq, EncodedEvent, Option<Instant>)>,
    ) {
        let mut last = None;
        {
            let mut recent = self.recent();
            for (seq, encoded, taken_at) in events {
                recent.push(FeedEvent {
                    seq,
                    id: encoded.id().clone(),
                    ts: encoded.ts(),
                    body: Body::Recent(encoded, taken_at),
                });
                last = Some(seq);
            }
        }
        if let Some(last) = last {
            self.wake(last);
        }
    }

    /// Something new is there. What is known to be there already wakes nobody.
    pub(crate) fn wake(&self, last: Seq) {
        self.last.send_if_modified(|known| {
            let is_new = last > *known;
            *known = last.max(*known);
            is_new
        });
    }

    /// Waits until nobody follows any more.
    pub(crate) async fn abandoned(&self) {
        self.last.closed().await;
    }

    /// Events of `topic` from `from` on, as [`Engine::read`] gives them.
    pub(crate) async fn read(
        &self,
        engine: &Arc<dyn Engine>,
        topic: &Topic,
        from: Seq,
        budget: ReadBudget,
    ) -> Result<Vec<FeedEvent>, ReadError> {
        if let Some(events) = self.recent().read(from, budget) {
            return Ok(events);
        }
        let page = engine.read(topic, from, budget).await?;
        Ok(page.events.into_iter().map(FeedEvent::from).collect())
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the recent events when nobody follows any more.
    pub(crate) fn forget_if_alone(&self) {
        if !self.has_followers() {
            *self.recent() = Recent::default();
        }
    }
}

impl Recent {
    fn push(&mut self, event: FeedEvent) {
        let follows = self.events.back().is_none_or(|last| last.seq.next() == event.seq);
        if !follows {
            // Somebody else wrote in between; what is here has a gap, the engine has not.
            *self = Self::default();
        }
        self.bytes += event.json_bytes();
        self.events.push_back(event);
        while self.bytes > RECENT_BYTES && self.events.len() > 1 {
            let oldest = self.events.pop_front().expect("there is more than one");
            self.bytes -= oldest.json_bytes();
        }
    }

    /// Nothing where the engine has to be asked.
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
    /// About how many bytes its JSON has; never fewer.
    #[must_use]
    pub fn json_bytes(&self) -> usize {
        match &self.body {
            Body::Stored(json) => json.len(),
            Body::Recent(encoded, _) => encoded.max_json_bytes(),
        }
    }

    /// When the bus took it; not known of what was read back from the store.
    pub(crate) const fn taken_at(&self) -> Option<Instant> {
        match &self.body {
            Body::Stored(_) => None,
            Body::Recent(_, taken_at) => *taken_at,
        }
    }

    /// Appends its JSON: the bytes that were made when it was committed.
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
