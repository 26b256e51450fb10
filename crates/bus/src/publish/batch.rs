//! The one way to publish: push events to a batch, submit the batch.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use prombus_engine::Durability;
use prombus_proto::limits::MAX_EVENT_BYTES;
use prombus_proto::{EncodedEvent, ErrorCode, EventId, NewEvent, Timestamp, Topic};

use super::admission::{TopicCount, admit, admit_bytes_paced, admit_paced, check_ts, give_back};
use super::committer::{PendingCommit, Submission};
use super::publish_times::PublishTimes;
use crate::bus::{Bus, Connection};
use crate::error::Refusal;
use crate::limits::{Charges, Limited, TopicPermit};
use crate::spans::PublishSpans;
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
    pub(crate) spans: PublishSpans,
    /// What the events took from the rate limits, which returns unless they are stored.
    pub(crate) charges: Charges,
    /// Room for the topics that the events create.
    pub(crate) permits: Vec<TopicPermit>,
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
            spans: PublishSpans::none(),
            charges: Charges::none(),
            permits: Vec::new(),
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
    /// If the bus is shutting down, a rate limit is exceeded, there are too many topics, or an event is too
    /// large or too far in the future. No tokens are taken then.
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
        let (topic, permit) = match last_topic {
            Some(topic) => topic.permit().map(|permit| (topic, permit))?,
            None => bus.topics_in_use().permit(topic, time.instant)?,
        };
        let counts = [(topic, events.len() as u64)];
        let pushed =
            self.admit_and_append(bus, connection, &counts, events.map(|event| (0, event)), time);
        if pushed.is_ok() {
            self.permits.extend(permit);
        }
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
        let mut permits = Vec::new();
        for (topic, event) in events {
            let index = match indices.entry(topic) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let (topic, permit) = bus.topics_in_use().permit(new.key(), time.instant)?;
                    counts.push((topic, 0));
                    permits.extend(permit);
                    *new.insert(counts.len() - 1)
                }
            };
            counts[index].1 += 1;
            indexed.push((index, event));
        }
        self.admit_and_append(bus, connection, &counts, indexed.into_iter(), time)?;
        self.permits.append(&mut permits);
        Ok(())
    }

    /// Like [`PublishBatch::push`], but waits for tokens instead of being refused, so the number of
    /// events may exceed the capacity of a limit.
    ///
    /// # Errors
    ///
    /// If the bus is shutting down, a limit never refills, there are too many topics, or an event is too
    /// large or too far in the future.
    pub async fn push_paced(
        &mut self,
        bus: &Bus,
        connection: &Connection,
        topic: &Topic,
        events: Vec<NewEvent>,
    ) -> Result<(), Refusal> {
        let instant = now();
        let (topic, permit) = bus.topics_in_use().permit(topic, instant)?;
        let count = events.len() as u64;
        admit_paced(bus, connection, &topic, count).await?;
        let time = PushTime { instant, ts: bus.clock().now() };
        self.permits.extend(permit);
        self.charges.add(&connection.limit, Some(&topic), count, 0);
        let before = self.bytes;
        let events = events.into_iter().map(|event| (topic.as_ref(), event));
        self.append_admitted(bus, events, time, |_| Ok(()))?;
        let bytes = (self.bytes - before) as u64;
        admit_bytes_paced(bus, connection, bytes).await?;
        self.charges.add(&connection.limit, Some(&topic), 0, bytes);
        Ok(())
    }

    /// Hands the batch to the committer, which may have to make room for it first.
    ///
    /// # Errors
    ///
    /// If the committer has stopped.
    pub async fn submit(self, bus: &Bus) -> Result<PendingCommit, Refusal> {
        let PublishBatch { events, durability, publish_times, spans, charges, permits, .. } = self;
        let submission = Submission {
            events,
            publish_times,
            spans,
            charges,
            permits,
            ..Submission::of_state(Vec::new(), durability)
        };
        PendingCommit::submit(bus.committer(), submission).await
    }

    /// Moves the events of `other` to the end of this batch.
    pub fn append(&mut self, mut other: PublishBatch) {
        self.spans.append(other.spans, self.events.len());
        self.events.append(&mut other.events);
        self.durability = self.durability.max(other.durability);
        self.publish_times.append(other.publish_times);
        self.charges.append(other.charges);
        self.permits.append(&mut other.permits);
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
        let total = || counts.iter().map(|(_, count)| count).sum();
        let topic = counts.first().map(|(topic, _)| &topic.topic);
        let refused = |limited: &Limited| bus.throttled(connection, limited.scope, total(), topic);
        admit(counts, &connection.limit, time.instant).inspect_err(refused)?;
        let events = events.map(|(index, event)| (counts[index].0.as_ref(), event));
        let mut bytes = 0;
        let admit_bytes = |count| {
            bytes = count;
            let taken = connection.limit.try_take_bytes(count, time.instant);
            Ok(taken.inspect_err(refused)?)
        };
        self.append_admitted(bus, events, time, admit_bytes)
            .inspect_err(|_| give_back(counts, &connection.limit))?;
        for (topic, count) in counts {
            let bytes = std::mem::take(&mut bytes);
            self.charges.add(&connection.limit, Some(topic), *count, bytes);
        }
        Ok(())
    }

    /// Encodes and adds events if `admit_bytes` admits the bytes of their JSON.
    fn append_admitted<'a>(
        &mut self,
        bus: &Bus,
        events: impl Iterator<Item = (&'a TopicInUse, NewEvent)>,
        time: PushTime,
        admit_bytes: impl FnOnce(u64) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let (before, mut bytes, mut durability) = (self.events.len(), self.bytes, self.durability);
        for (topic, event) in events {
            if let Err(refusal) = check_ts(&event, time.ts) {
                self.truncate(before);
                return Err(refusal);
            }
            let span = PublishSpans::sample(bus.tracer(), &event.headers);
            let new_id = || bus.ids().next_id_at(time.ts);
            let event = event.complete(self.topic_name(topic), new_id, time.ts).into_encoded();
            let event_bytes = event.max_json_bytes();
            if event_bytes > MAX_EVENT_BYTES {
                self.truncate(before);
                let message =
                    format!("the event has {event_bytes} bytes; the limit is {MAX_EVENT_BYTES}");
                return Err(Refusal::new(ErrorCode::PayloadTooLarge, message));
            }
            bytes += event_bytes;
            durability = durability.max(topic.durability());
            if let Some(span) = span {
                let index = self.events.len();
                self.spans.start(bus.tracer(), span, (index, &event), time.instant);
            }
            self.events.push(event);
        }
        if let Err(refusal) = admit_bytes((bytes - self.bytes) as u64) {
            self.truncate(before);
            return Err(refusal);
        }
        self.bytes = bytes;
        self.durability = durability;
        self.publish_times.append(PublishTimes::of(time.instant, self.events.len() - before));
        Ok(())
    }

    /// Drops the events from number `events` on.
    fn truncate(&mut self, events: usize) {
        self.events.truncate(events);
        self.spans.truncate(events);
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
