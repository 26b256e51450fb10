//! The one way to publish: push events to a batch, submit the batch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use prombus_engine::Durability;
use prombus_proto::limits::MAX_EVENT_BYTES;
use prombus_proto::{EncodedEvent, ErrorCode, EventId, NewEvent, Timestamp, Topic};

use super::admission::{TopicCount, admit, admit_paced, check_ts, give_back};
use super::committer::{PendingCommit, Submission};
use super::publish_times::PublishTimes;
use crate::bus::{Bus, Connection};
use crate::error::Refusal;
use crate::time::now;
use crate::topics::TopicInUse;

/// Admitted and encoded events that are committed together.
///
/// Each push is all or none: if it is refused, the batch is unchanged.
#[derive(Debug)]
pub struct PublishBatch {
    pub(crate) events: Vec<EncodedEvent>,
    /// The strongest durability that a topic of the batch asks for.
    pub(crate) durability: Durability,
    pub(crate) publish_times: PublishTimes,
    bytes: usize,
    /// Read by the first push and used by all: reading the clocks costs as much as the rest of a push.
    now: Option<PushTime>,
    /// The topic of the last push, which is usually the topic of the next one.
    last_topic: Option<Arc<TopicInUse>>,
}

/// The time of a push, by the monotonic clock and by the wall clock.
#[derive(Clone, Copy, Debug)]
struct PushTime {
    instant: Instant,
    ts: Timestamp,
}

impl PublishBatch {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            events: Vec::new(),
            durability: Durability::Buffered,
            publish_times: PublishTimes::new(),
            bytes: 0,
            now: None,
            last_topic: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn of_events(events: Vec<EncodedEvent>) -> Self {
        Self { events, ..Self::new() }
    }

    #[cfg(test)]
    pub(crate) fn with_durability(durability: Durability) -> Self {
        Self { durability, ..Self::new() }
    }

    /// Admits, encodes and adds `events` for `topic`.
    ///
    /// # Errors
    ///
    /// If the bus is shutting down, a rate limit is exceeded, or an event is too large or too far in the
    /// future. No tokens are taken then.
    pub fn push(
        &mut self,
        bus: &Bus,
        connection: &Connection,
        topic: &Topic,
        events: impl ExactSizeIterator<Item = NewEvent>,
    ) -> Result<(), Refusal> {
        bus.check_open()?;
        let time = self.time(bus);
        // Moved out and back instead of cloned: the committer updates the same reference count.
        let last_topic = self.last_topic.take().filter(|last| last.topic == *topic);
        let topic = last_topic.unwrap_or_else(|| bus.topics_in_use().get(topic, time.instant));
        let counts = [(topic, events.len() as u64)];
        let pushed =
            self.admit_and_append(bus, connection, &counts, events.map(|event| (0, event)), time);
        let [(topic, _)] = counts;
        self.last_topic = Some(topic);
        pushed
    }

    /// Like [`PublishBatch::push`], for events of several topics.
    ///
    /// # Errors
    ///
    /// The same as those of [`PublishBatch::push`].
    pub fn push_mixed(
        &mut self,
        bus: &Bus,
        connection: &Connection,
        events: Vec<(Topic, NewEvent)>,
    ) -> Result<(), Refusal> {
        bus.check_open()?;
        let time = self.time(bus);
        let mut counts: Vec<TopicCount> = Vec::new();
        let mut indices = HashMap::new();
        let mut indexed = Vec::with_capacity(events.len());
        for (topic, event) in events {
            let index = *indices.entry(topic).or_insert_with_key(|topic| {
                counts.push((bus.topics_in_use().get(topic, time.instant), 0));
                counts.len() - 1
            });
            counts[index].1 += 1;
            indexed.push((index, event));
        }
        self.admit_and_append(bus, connection, &counts, indexed.into_iter(), time)
    }

    /// Like [`PublishBatch::push`], but waits for tokens instead of being refused, so the number of
    /// events may exceed the capacity of a limit.
    ///
    /// # Errors
    ///
    /// If the bus is shutting down, a limit never refills, or an event is too large or too far in the
    /// future. Tokens that were taken are not returned.
    pub async fn push_paced(
        &mut self,
        bus: &Bus,
        connection: &Connection,
        topic: &Topic,
        events: Vec<NewEvent>,
    ) -> Result<(), Refusal> {
        let instant = now();
        let topic = bus.topic_in_use(topic);
        admit_paced(bus, connection, &topic, events.len() as u64).await?;
        let time = PushTime { instant, ts: bus.clock().now() };
        self.append_admitted(bus, events.into_iter().map(|event| (topic.as_ref(), event)), time)
    }

    /// Hands the batch to the committer, which may have to make room for it first.
    ///
    /// # Errors
    ///
    /// If the committer has stopped.
    pub async fn submit(self, bus: &Bus) -> Result<PendingCommit, Refusal> {
        let PublishBatch { events, durability, publish_times, .. } = self;
        let submission = Submission { events, publish_times, state: Vec::new(), durability };
        PendingCommit::submit(bus.committer(), submission).await
    }

    /// Moves the events of `other` to the end of this batch.
    pub fn append(&mut self, mut other: PublishBatch) {
        self.events.append(&mut other.events);
        self.durability = self.durability.max(other.durability);
        self.publish_times.append(other.publish_times);
        self.bytes += other.bytes;
    }

    /// Returns the ids of the events, in order.
    pub fn ids(&self) -> impl Iterator<Item = &EventId> {
        self.events.iter().map(EncodedEvent::id)
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.events.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns an upper bound of the events' JSON bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn time(&mut self, bus: &Bus) -> PushTime {
        *self.now.get_or_insert_with(|| PushTime { instant: now(), ts: bus.clock().now() })
    }

    /// Each event comes with the index of its topic in `counts`.
    fn admit_and_append(
        &mut self,
        bus: &Bus,
        connection: &Connection,
        counts: &[TopicCount],
        events: impl Iterator<Item = (usize, NewEvent)>,
        time: PushTime,
    ) -> Result<(), Refusal> {
        admit(counts, &connection.limit, time.instant).inspect_err(|limited| {
            let events = counts.iter().map(|(_, count)| count).sum();
            bus.metrics().rate_limited(limited.scope, events);
        })?;
        let events = events.map(|(index, event)| (counts[index].0.as_ref(), event));
        self.append_admitted(bus, events, time)
            .inspect_err(|_| give_back(counts, &connection.limit))
    }

    fn append_admitted<'a>(
        &mut self,
        bus: &Bus,
        events: impl Iterator<Item = (&'a TopicInUse, NewEvent)>,
        time: PushTime,
    ) -> Result<(), Refusal> {
        let (before, mut bytes, mut durability) = (self.events.len(), self.bytes, self.durability);
        for (topic, event) in events {
            if let Err(refusal) = check_ts(&event, time.ts) {
                self.events.truncate(before);
                return Err(refusal);
            }
            let new_id = || bus.ids().next_id_at(time.ts);
            let event = event.complete(self.topic_name(topic), new_id, time.ts).into_encoded();
            let event_bytes = event.max_json_bytes();
            if event_bytes > MAX_EVENT_BYTES {
                self.events.truncate(before);
                let message =
                    format!("the event has {event_bytes} bytes; the limit is {MAX_EVENT_BYTES}");
                return Err(Refusal::new(ErrorCode::PayloadTooLarge, message));
            }
            bytes += event_bytes;
            durability = durability.max(topic.durability());
            self.events.push(event);
        }
        self.bytes = bytes;
        self.durability = durability;
        self.publish_times.append(PublishTimes::of(time.instant, self.events.len() - before));
        Ok(())
    }

    /// Returns the name of `topic` for the next event.
    ///
    /// The committer drops names while connections build events. If all shared one reference count,
    /// they would contend for its cache line, so a batch has its own copy of the name of its first topic.
    fn topic_name(&self, topic: &TopicInUse) -> Topic {
        match self.events.last() {
            None => topic.topic.unshared(),
            Some(last) if *last.topic() == topic.topic => last.topic().clone(),
            Some(_) => topic.topic.clone(),
        }
    }
}

impl Default for PublishBatch {
    fn default() -> Self {
        Self::new()
    }
}
