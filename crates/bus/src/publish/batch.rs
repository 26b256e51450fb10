//! From what a publisher hands in to an event that can be committed: limit, check, build.

use std::sync::Arc;
use std::time::Instant;

use prombus_engine::{Durability, Position};
use prombus_proto::limits::MAX_EVENT_BYTES;
use prombus_proto::{EncodedEvent, ErrorCode, EventId, IdSource, NewEvent, Timestamp, Topic};
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::limits::{Limit, Limited, Scope};
use crate::publish::PublishTimes;
use crate::publish::{Answer, Committer, Submission};
use crate::topics::TopicInUse;

/// Events that may be committed: limited, checked, encoded.
#[derive(Debug)]
pub struct PublishBatch {
    pub(crate) events: Vec<EncodedEvent>,
    pub(crate) durability: Durability,
    pub(crate) taken: PublishTimes,
    /// Counted along: it is asked for with every frame that joins.
    bytes: usize,
    /// When those are taken that join.
    joining_at: Option<Moment>,
    /// The topic of those that joined last: mostly that of the next ones, too.
    topic: Option<Arc<TopicInUse>>,
}

/// What time it is, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) ts: Timestamp,
}

/// Events, or other changes, on their way into the store.
#[derive(Debug)]
pub struct Submitted(oneshot::Receiver<Answer>);

impl PublishBatch {
    /// Nothing yet.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            events: Vec::new(),
            durability: Durability::Buffered,
            taken: PublishTimes::none(),
            bytes: 0,
            joining_at: None,
            topic: None,
        }
    }

    /// When those are taken that join: all of them together, for the clocks cost as much as the rest.
    pub(crate) fn joining_at(&mut self, now: impl FnOnce() -> Moment) -> Moment {
        *self.joining_at.get_or_insert_with(now)
    }

    /// The topic of those that join. It is given back by [`PublishBatch::joined`]: a clone for each of them would
    /// be counted where the committer counts, too.
    pub(crate) fn joining_topic(
        &mut self,
        topic: &Topic,
        find: impl FnOnce() -> Arc<TopicInUse>,
    ) -> Arc<TopicInUse> {
        self.topic.take().filter(|last| last.topic == *topic).unwrap_or_else(find)
    }

    pub(crate) fn joined(&mut self, topic: Arc<TopicInUse>) {
        self.topic = Some(topic);
    }

    /// The name of a topic, for the next event. The committer drops it while others are built, so that all of
    /// one name would wait for each other's counts: those that are committed together mostly have one of
    /// their own.
    fn name_of(&self, topic: &TopicInUse) -> Topic {
        match self.events.last() {
            None => topic.topic.unshared(),
            Some(last) if *last.topic() == topic.topic => last.topic().clone(),
            Some(_) => topic.topic.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn as_safe_as(durability: Durability) -> Self {
        Self { durability, ..Self::none() }
    }

    /// Takes the events of `other` behind its own: they are committed together.
    pub fn append(&mut self, mut other: PublishBatch) {
        self.events.append(&mut other.events);
        self.durability = self.durability.max(other.durability);
        self.taken.append(other.taken);
        self.bytes += other.bytes;
    }

    /// The events' ids, in order.
    pub fn ids(&self) -> impl Iterator<Item = &EventId> {
        self.events.iter().map(EncodedEvent::id)
    }

    /// How many events there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// About how many bytes they have.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) async fn submit(self, committer: &Committer) -> Result<Submitted, Refusal> {
        let PublishBatch { events, durability, taken, .. } = self;
        Submitted::to(committer, Submission { events, taken, state: Vec::new(), durability }).await
    }
}

impl Default for PublishBatch {
    fn default() -> Self {
        Self::none()
    }
}

impl Submitted {
    pub(crate) async fn to(committer: &Committer, submission: Submission) -> Result<Self, Refusal> {
        Ok(Self(committer.submit(submission).await?))
    }

    /// Where the events are, once they are stored.
    pub async fn stored(&mut self) -> Result<Vec<Position>, Refusal> {
        match (&mut self.0).await {
            Ok(answer) => Ok(answer?.positions),
            Err(_) => Err(Refusal::shutting_down()),
        }
    }
}

/// Takes the tokens for so many events of each topic. All or none: whoever is refused and waits as
/// long as it is told finds what it had.
pub(crate) fn admit(
    wanted: &[(Arc<TopicInUse>, u64)],
    connection: &Limit,
    now: Instant,
) -> Result<(), Limited> {
    let all = wanted.iter().map(|(_, count)| count).sum();
    connection.try_consume(all, now).map_err(|deficit| Scope::Connection.limited(deficit))?;
    for (place, (topic, count)) in wanted.iter().enumerate() {
        if let Err(deficit) = topic.limit.try_consume(*count, now) {
            give_back(&wanted[..place], connection);
            connection.give_back(wanted[place..].iter().map(|(_, count)| count).sum());
            return Err(Scope::Topic.limited(deficit));
        }
    }
    Ok(())
}

/// Gives back what was taken for events that are refused after all.
pub(crate) fn give_back(taken: &[(Arc<TopicInUse>, u64)], connection: &Limit) {
    for (topic, count) in taken {
        topic.limit.give_back(*count);
        connection.give_back(*count);
    }
}

/// Builds events that were admitted behind those of `prepared`, and checks what comes of them. If one
/// is refused, none joins.
pub(crate) fn build<'a>(
    prepared: &mut PublishBatch,
    events: impl Iterator<Item = (&'a TopicInUse, NewEvent)>,
    ids: &IdSource,
    moment: Moment,
) -> Result<(), Refusal> {
    let (before, mut bytes, mut durability) =
        (prepared.events.len(), prepared.bytes, prepared.durability);
    for (topic, event) in events {
        let new_id = || ids.next_id_at(moment.ts);
        let name = prepared.name_of(topic);
        let event = event.complete(name, new_id, moment.ts).into_encoded();
        let event_bytes = event.max_json_bytes();
        if event_bytes > MAX_EVENT_BYTES {
            prepared.events.truncate(before);
            let message =
                format!("an event of {event_bytes} bytes; the limit is {MAX_EVENT_BYTES}");
            return Err(Refusal::new(ErrorCode::PayloadTooLarge, message));
        }
        bytes += event_bytes;
        durability = durability.max(topic.durability());
        prepared.events.push(event);
    }
    prepared.bytes = bytes;
    prepared.durability = durability;
    prepared.taken.append(PublishTimes::of(moment.at, prepared.events.len() - before));
    Ok(())
}
