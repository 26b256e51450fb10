//! Reading a topic without a group.

use std::sync::Arc;

use prombus_engine::{Engine, ReadBudget};
use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

use crate::bus::Bus;
use crate::error::Refusal;
use crate::topics::read::{self, DamagedRange, ReadPage};
use crate::topics::{FeedEvent, StartAt, TopicInUse};

/// Reads a topic from a position on, and waits for new events at its end.
pub struct Follower {
    engine: Arc<dyn Engine>,
    topic: Arc<TopicInUse>,
    growth: watch::Receiver<Seq>,
    next: Seq,
}

impl Bus {
    /// Returns the `seq` of the first event at `start`, which may not exist yet.
    pub async fn locate(&self, topic: &Topic, start: &StartAt) -> Result<Seq, Refusal> {
        self.bounds(topic).await?;
        start.first(self.engine().as_ref(), topic).await
    }

    /// Follows `topic` from `start` on.
    pub async fn follow(&self, topic: &Topic, start: &StartAt) -> Result<Follower, Refusal> {
        self.bounds(topic).await?;
        let in_use = self.topic_in_use(topic);
        // Before the lookup, so that events published in between wake the follower.
        let growth = in_use.watch(self.engine());
        let next = start.first(self.engine().as_ref(), topic).await?;
        Ok(Follower { engine: Arc::clone(self.engine()), topic: in_use, growth, next })
    }
}

impl Follower {
    /// Returns the next events, in order, or the damage in their place, which the follower then has
    /// passed. Waits until there is one of them.
    pub async fn page(&mut self, budget: ReadBudget) -> Result<ReadPage<FeedEvent>, Refusal> {
        loop {
            let known = *self.growth.borrow_and_update();
            let TopicInUse { topic, feed, .. } = self.topic.as_ref();
            let events = match feed.read(&self.engine, topic, self.next, budget).await {
                Ok(events) => events,
                Err(error) => {
                    let damaged = DamagedRange::of(error, self.next)?;
                    self.next = damaged.last.next();
                    return Ok(ReadPage::Damaged(damaged));
                }
            };
            if let Some(last) = events.last() {
                self.next = last.seq.next();
                return Ok(ReadPage::Events(events));
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
