//! Marks of handled events: looked up by SEEN, stored by MARK and by ACKs.

use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{Durability, Engine};
use prombus_proto::{EventId, Group, Timestamp, Topic};

use crate::bus::{Bus, Connection};
use crate::error::Refusal;
use crate::groups::{Acked, Subscription, dropped_reply};
use crate::limits::Charges;
use crate::publish::{Committer, PendingCommit, Submission};
use crate::stored::mark::{Marks, are_marked};

/// The answer to an acknowledgement that marks its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckedAndMarked {
    /// The acknowledgement, which is stored with the marks of the ids that were leased.
    pub acked: Acked,
    /// Whether the stale ids are marked, those of events that exist.
    pub stale_marked: Result<(), Refusal>,
}

impl Bus {
    /// Returns those of `ids` that `group` on `topic` has marked, in order.
    pub async fn seen(
        &self,
        topic: &Topic,
        group: &Group,
        mut ids: Vec<EventId>,
    ) -> Result<Vec<EventId>, Refusal> {
        let mut marked = are_marked(self.engine().as_ref(), topic, group, &ids).await?.into_iter();
        ids.retain(|_| marked.next().unwrap_or(false));
        Ok(ids)
    }

    /// Marks `ids` as handled by `group` on `topic` for `ttl` from now, which takes a token per id from the
    /// connection. Marking an id again restarts its time.
    pub async fn mark(
        &self,
        connection: &Connection,
        topic: &Topic,
        group: &Group,
        ids: &[EventId],
        ttl: Duration,
    ) -> Result<PendingCommit, Refusal> {
        self.check_open()?;
        let count = ids.len() as u64;
        let charges = self.charge(connection, count)?;
        let mut marks = Marks::of(topic, group, self.marked_until(ttl));
        ids.iter().for_each(|id| marks.add(id));
        // Not the topic in use: a topic that nobody uses must not be remembered for this.
        let durability = self.topics_in_use().rules(topic).durability;
        let submission =
            Submission { charges, ..Submission::of_state(marks.into_state(), durability) };
        PendingCommit::submit(self.committer(), submission).await
    }

    /// Acknowledges `ids` and marks them in the same commit. Those whose lease has ended are stale, but
    /// handled: they are marked as well, by a later commit, if `topic` has such an event. Marks of made-up
    /// ids would fill the store.
    ///
    /// The acknowledgement is sent before this returns. Only the caller waits for the lookup of stale ids,
    /// which may fail although the acknowledgement is stored. The tokens of `charges`, one per id, return if
    /// the acknowledgement is refused.
    pub fn ack_and_mark(
        &self,
        subscription: &Subscription,
        ids: Vec<EventId>,
        until: Timestamp,
        charges: Charges,
    ) -> impl Future<Output = Result<AckedAndMarked, Refusal>> + Send + use<> {
        let reply = subscription.ack_charged(ids.clone(), Some(until), None, charges);
        let topic = subscription.topic();
        let marking = LateMarking {
            engine: Arc::clone(self.engine()),
            committer: self.committer().clone(),
            marks: Marks::of(topic, subscription.group(), until),
            durability: self.topics_in_use().rules(topic).durability,
            topic: topic.clone(),
        };
        let is_closing = Arc::clone(&subscription.is_closing);
        async move {
            let acked = reply.await.unwrap_or_else(|_| Err(dropped_reply(&is_closing)))?;
            let stale: Vec<_> = acked.stale.iter().map(|index| ids[*index].clone()).collect();
            let stale_marked = if stale.is_empty() { Ok(()) } else { marking.run(stale).await };
            Ok(AckedAndMarked { acked, stale_marked })
        }
    }

    /// Returns when a mark expires that is stored now for `ttl`.
    #[must_use]
    pub fn marked_until(&self, ttl: Duration) -> Timestamp {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.clock().now().plus_ms(ttl)
    }
}

/// Marks ids that are not on lease any more.
struct LateMarking {
    engine: Arc<dyn Engine>,
    committer: Committer,
    topic: Topic,
    /// Empty.
    marks: Marks,
    durability: Durability,
}

impl LateMarking {
    /// Marks those of `ids` that the topic has.
    async fn run(mut self, ids: Vec<EventId>) -> Result<(), Refusal> {
        let found = self.engine.seek_ids(&self.topic, &ids).await?;
        let existing = ids.iter().zip(found).filter(|(_, seq)| seq.is_some());
        existing.for_each(|(id, _)| self.marks.add(id));
        if !self.marks.is_empty() {
            let submission = Submission::of_state(self.marks.into_state(), self.durability);
            PendingCommit::submit(&self.committer, submission).await?.stored().await?;
        }
        Ok(())
    }
}
