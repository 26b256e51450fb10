//! The store of one case, with helpers for the calls that cases make.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use prombus_proto::{
    Clock, EncodedEvent, Event, EventId, Headers, IdSource, ManualClock, Payload, SeededRandom,
    Seq, Timestamp, Topic,
};

use super::Subject;
use crate::{
    Batch, Bounds, CommitError, Committed, Durability, Engine, Expect, Position, ReadBudget,
    StateEntry, StateKey, StateOp, StoredEvent, Version,
};

/// A budget for more events than any case stores.
pub(super) const EVERYTHING: ReadBudget = ReadBudget { events: usize::MAX, bytes: usize::MAX };

pub(super) struct TestStore {
    engine: Option<Arc<dyn Engine>>,
    /// Declared after the engine so that it is dropped later: it may own the engine's directory.
    subject: Box<dyn Subject>,
    pub(super) clock: ManualClock,
    ids: IdSource,
    events_made: AtomicU64,
}

impl TestStore {
    pub(super) async fn open(mut subject: Box<dyn Subject>) -> Self {
        let clock = subject.clock();
        clock.set(Timestamp(1_700_000_000_000));
        let engine = subject.open().await;
        Self {
            subject,
            engine: Some(engine),
            ids: IdSource::new(Arc::new(clock.clone()), Arc::new(SeededRandom::new(0x5EED))),
            clock,
            events_made: AtomicU64::new(0),
        }
    }

    pub(super) fn engine(&self) -> &Arc<dyn Engine> {
        self.engine.as_ref().expect("the case has dropped the engine")
    }

    /// Closes the engine and reopens the store.
    pub(super) async fn restart(&mut self) {
        self.engine().close().await.unwrap();
        self.drop_engine();
        self.engine = Some(self.subject.open().await);
    }

    /// Opens another engine on the same store while the first stays open.
    pub(super) async fn open_another(&mut self) -> Arc<dyn Engine> {
        self.subject.open().await
    }

    pub(super) fn drop_engine(&mut self) {
        self.engine = None;
    }

    pub(super) fn new_id(&self) -> EventId {
        self.ids.next_id()
    }

    /// Creates an event with a new id and the current time.
    pub(super) fn event(&self, topic_name: &str) -> Event {
        let number = self.events_made.fetch_add(1, Ordering::Relaxed);
        Event {
            id: self.new_id(),
            ts: self.clock.now(),
            topic: topic(topic_name),
            key: None,
            headers: Headers::default(),
            payload: payload(&format!("{{\"number\":{number}}}")),
            caused_by: vec![],
            tags: vec![],
            sid: None,
        }
    }

    pub(super) fn events(&self, topic_name: &str, count: usize) -> Vec<Event> {
        (0..count).map(|_| self.event(topic_name)).collect()
    }

    pub(super) async fn try_commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.engine().commit(batch).await
    }

    pub(super) async fn commit(&self, batch: Batch) -> Committed {
        self.try_commit(batch).await.unwrap()
    }

    pub(super) async fn append(&self, events: &[Event]) -> Vec<Position> {
        self.commit(of_events(events)).await.positions
    }

    /// Appends `count` new events and returns them.
    pub(super) async fn fill(&self, topic_name: &str, count: usize) -> Vec<Event> {
        let events = self.events(topic_name, count);
        self.append(&events).await;
        events
    }

    /// Appends one event for each of `times`, in this order, and returns them.
    pub(super) async fn fill_at(&self, topic_name: &str, times: &[u64]) -> Vec<Event> {
        let events: Vec<Event> =
            times.iter().map(|ts| Event { ts: Timestamp(*ts), ..self.event(topic_name) }).collect();
        self.append(&events).await;
        events
    }

    /// Returns all events of a topic.
    pub(super) async fn read_all(&self, topic_name: &str) -> Vec<StoredEvent> {
        self.read(topic_name, 0, EVERYTHING).await
    }

    pub(super) async fn read(
        &self,
        topic_name: &str,
        from: u64,
        budget: ReadBudget,
    ) -> Vec<StoredEvent> {
        self.engine().read(&topic(topic_name), Seq(from), budget).await.unwrap().events
    }

    pub(super) async fn bounds(&self, topic_name: &str) -> Bounds {
        self.engine().bounds(&topic(topic_name)).await.unwrap()
    }

    pub(super) async fn seek_id(&self, topic_name: &str, id: &EventId) -> Option<u64> {
        let seq = self.engine().seek_id(&topic(topic_name), id).await;
        seq.unwrap().map(|seq| seq.0)
    }

    pub(super) async fn seek_time(&self, topic_name: &str, ts: u64) -> u64 {
        let seq = self.engine().seek_time(&topic(topic_name), Timestamp(ts)).await;
        seq.unwrap().0
    }

    pub(super) async fn trim(&self, topic_name: &str, below: u64) -> Bounds {
        self.engine().trim(&topic(topic_name), Seq(below)).await.unwrap()
    }

    pub(super) async fn put(&self, key: &str, value: &str) -> Version {
        self.commit(of_state(vec![put(key, value)])).await.version
    }

    pub(super) async fn get(&self, name: &str) -> Option<StateEntry> {
        self.engine().get(&key(name)).await.unwrap()
    }

    /// Returns the value of a key as text.
    pub(super) async fn value(&self, name: &str) -> Option<String> {
        let entry = self.get(name).await?;
        Some(String::from_utf8(entry.value.to_vec()).unwrap())
    }

    pub(super) async fn topic_names(&self) -> Vec<String> {
        let topics = self.engine().topics().await.unwrap();
        topics.iter().map(ToString::to_string).collect()
    }

    /// Returns the keys of the entries found.
    pub(super) async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Vec<Vec<u8>> {
        let found = self.engine().scan(prefix, after, limit).await.unwrap();
        found.iter().map(|entry| entry.key.as_bytes().to_vec()).collect()
    }
}

pub(super) fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

pub(super) fn payload(json: &str) -> Payload {
    Payload::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap()
}

pub(super) fn key(name: &str) -> StateKey {
    StateKey::new(Bytes::copy_from_slice(name.as_bytes())).unwrap()
}

pub(super) fn of_events(events: &[Event]) -> Batch {
    let encoded: Vec<EncodedEvent> = events.iter().map(Event::encode).collect();
    Batch::of_events(encoded, Durability::Fsync)
}

pub(super) fn of_state(ops: Vec<StateOp>) -> Batch {
    Batch::of_state(ops, Durability::Fsync)
}

pub(super) fn put(key: &str, value: &str) -> StateOp {
    put_if(key, value, Expect::Any)
}

pub(super) fn put_if(name: &str, value: &str, expect: Expect) -> StateOp {
    StateOp::Put {
        key: key(name),
        value: Bytes::copy_from_slice(value.as_bytes()),
        expires_at: None,
        expect,
    }
}

pub(super) fn put_until(name: &str, value: &str, expires_at: Timestamp) -> StateOp {
    StateOp::Put {
        key: key(name),
        value: Bytes::copy_from_slice(value.as_bytes()),
        expires_at: Some(expires_at),
        expect: Expect::Any,
    }
}

pub(super) fn delete(name: &str) -> StateOp {
    delete_if(name, Expect::Any)
}

pub(super) fn delete_if(name: &str, expect: Expect) -> StateOp {
    StateOp::Delete { key: key(name), expect }
}

/// Positions of newly stored events.
pub(super) fn stored_at(seqs: impl IntoIterator<Item = u64>) -> Vec<Position> {
    let stored = |seq| Position { seq: Seq(seq), duplicate: false };
    seqs.into_iter().map(stored).collect()
}

/// The position of a duplicate.
pub(super) fn found_at(seq: u64) -> Position {
    Position { seq: Seq(seq), duplicate: true }
}

/// The exact part of bounds: the first and the next position. The size may change without a commit.
pub(super) fn ends(bounds: Bounds) -> (u64, u64) {
    (bounds.first.0, bounds.next.0)
}

pub(super) fn ids_of(events: &[Event]) -> Vec<EventId> {
    events.iter().map(|event| event.id.clone()).collect()
}

pub(super) fn stored_ids(events: &[StoredEvent]) -> Vec<EventId> {
    events.iter().map(|event| event.id.clone()).collect()
}

pub(super) fn seqs_of(events: &[StoredEvent]) -> Vec<u64> {
    events.iter().map(|event| event.seq.0).collect()
}

/// Returns what must be read back for `event` stored at `seq`.
pub(super) fn as_stored(event: &Event, seq: u64) -> StoredEvent {
    let mut json = Vec::new();
    event.encode().write_json(Seq(seq), &mut json);
    StoredEvent {
        seq: Seq(seq),
        ts: event.ts,
        id: event.id.clone(),
        key: event.key.clone(),
        json: json.into(),
    }
}

/// Returns what must be read back for `events` stored from `first` on.
pub(super) fn all_as_stored(events: &[Event], first: u64) -> Vec<StoredEvent> {
    events.iter().zip(first..).map(|(event, seq)| as_stored(event, seq)).collect()
}
