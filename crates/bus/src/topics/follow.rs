//! Reading a topic without a group.

use std::sync::Arc;

use prombus_engine::{Engine, ReadBudget};
use prombus_proto::{ErrorCode, Seq, Topic};
use tokio::sync::watch;

use crate::bus::Bus;
use crate::error::Refusal;
use crate::topics::read::{self, DamagedRange};
use crate::topics::{FeedEvent, StartAt, TopicInUse};

/// Reads a topic from a position on, and waits for new events at its end.
pub struct Follower {
    engine: Arc<dyn Engine>,
    topic: Arc<TopicInUse>,
    growth: watch::Receiver<Seq>,
    next: Seq,
    /// The deletions of the topic before it was followed.
    deletions: u64,
    /// The event to start after is gone, which the follower has not reported yet.
    has_lost_its_start: bool,
}

/// What a [`Follower`] finds next.
#[derive(Clone, Debug)]
pub enum Followed {
    Events(Vec<FeedEvent>),
    /// The next events cannot be read back. Those after them can.
    Damaged(DamagedRange),
    /// Retention has removed events that the follower has not read. It continues at `next`.
    Removed {
        next: Seq,
    },
}

impl Bus {
    /// Returns the `seq` of the first event at `start`, which may not exist yet.
    pub async fn locate(&self, topic: &Topic, start: &StartAt) -> Result<Seq, Refusal> {
        self.bounds(topic).await?;
        start.first(self.engine().as_ref(), topic).await
    }

    /// Follows `topic` from `start` on. If that is after an event that the topic does not have, and so
    /// may have had, it follows from the first event that is kept, and says so first.
    pub async fn follow(&self, topic: &Topic, start: &StartAt) -> Result<Follower, Refusal> {
        self.bounds(topic).await?;
        let in_use = self.topic_in_use(topic);
        // Before the lookup, so that events published in between wake the follower.
        let deletions = in_use.feed.deletions();
        let growth = in_use.watch(self.engine());
        let (next, has_lost_its_start) = match start.first(self.engine().as_ref(), topic).await {
            Ok(first) => (first, false),
            Err(refusal) if refusal.code == ErrorCode::UnknownId => (Seq::ZERO, true),
            Err(refusal) => return Err(refusal),
        };
        let next = next.max(self.engine().bounds(topic).await?.first);
        let engine = Arc::clone(self.engine());
        let topic = in_use;
        Ok(Follower { engine, topic, growth, next, deletions, has_lost_its_start })
    }
}

impl Follower {
    /// Returns the next events, in order, or what is in their place, which the follower then has
    /// passed. Waits until there is one of them.
    ///
    /// # Errors
    ///
    /// `UnknownTopic` once the topic was deleted, or whatever keeps the store from being read.
    pub async fn page(&mut self, budget: ReadBudget) -> Result<Followed, Refusal> {
        if std::mem::take(&mut self.has_lost_its_start) {
            return Ok(Followed::Removed { next: self.next });
        }
        loop {
            let known = *self.growth.borrow_and_update();
            let TopicInUse { topic, feed, .. } = self.topic.as_ref();
            if feed.deletions() != self.deletions {
                let message = format!("{topic} was deleted");
                return Err(Refusal::new(ErrorCode::UnknownTopic, message));
            }
            let events = match feed.read(&self.engine, topic, self.next, budget).await {
                Ok(events) => events,
                Err(error) => {
                    let damaged = DamagedRange::of(error, self.next)?;
                    self.next = damaged.last.next();
                    return Ok(Followed::Damaged(damaged));
                }
            };
            if let (Some(first), Some(last)) = (events.first(), events.last()) {
                let kept = match first.seq > self.next {
                    true => self.engine.bounds(topic).await?.first,
                    false => self.next,
                };
                if kept > self.next {
                    self.next = kept;
                    return Ok(Followed::Removed { next: kept });
                }
                self.next = last.seq.next();
                return Ok(Followed::Events(events));
            }
            if known >= self.next && self.engine.bounds(topic).await?.first <= self.next {
                let reason = "it returned no events".to_owned();
                return Err(read::no_progress(topic, self.next, reason).into());
            }
            // The sender cannot be dropped: we hold the feed.
            let _ = self.growth.changed().await;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // Drop our receiver before the check by replacing it with an unconnected one.
        self.growth = watch::Sender::new(Seq::ZERO).subscribe();
        self.topic.feed.clear_if_abandoned();
    }
}
