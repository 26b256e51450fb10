//! A topic's events for whoever reads along, without a group.

use std::sync::Arc;

use prombus_engine::{Engine, ReadBudget, StoredEvent};
use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

use crate::bus::Bus;
use crate::error::Refusal;
use crate::topics::FeedEvent;
use crate::topics::StartAt;
use crate::topics::TopicInUse;

/// One who reads a topic along, from a place on and for as long as it likes.
pub struct Follower {
    engine: Arc<dyn Engine>,
    topic: Arc<TopicInUse>,
    growth: watch::Receiver<Seq>,
    next: Seq,
}

impl Bus {
    /// Where `start` is on `topic`: the first event there, which may not exist yet.
    pub async fn locate(&self, topic: &Topic, start: &StartAt) -> Result<Seq, Refusal> {
        self.bounds(topic).await?;
        start.first(self.engine().as_ref(), topic).await
    }

    /// Events of `topic` from `from` on, in order, at least one if there is one.
    pub async fn read(
        &self,
        topic: &Topic,
        from: Seq,
        budget: ReadBudget,
    ) -> Result<Vec<StoredEvent>, Refusal> {
        Ok(self.engine().read(topic, from, budget).await?.events)
    }

    /// Reads `topic` along from `start` on.
    pub async fn follow(&self, topic: &Topic, start: &StartAt) -> Result<Follower, Refusal> {
        self.bounds(topic).await?;
        let in_use = self.topic_in_use(topic);
        // Before the place is looked up: what comes in between wakes.
        let growth = in_use.watch(self.engine());
        let next = start.first(self.engine().as_ref(), topic).await?;
        Ok(Follower { engine: Arc::clone(self.engine()), topic: in_use, growth, next })
    }
}

impl Follower {
    /// The events that come next, in order; waits until there is one.
    pub async fn page(&mut self, budget: ReadBudget) -> Result<Vec<FeedEvent>, Refusal> {
        loop {
            self.growth.mark_unchanged();
            let TopicInUse { topic, feed, .. } = self.topic.as_ref();
            let events = feed.read(&self.engine, topic, self.next, budget).await?;
            if let Some(last) = events.last() {
                self.next = last.seq.next();
                return Ok(events);
            }
            // An error would mean that the feed is gone, and we hold it.
            let _ = self.growth.changed().await;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // A receiver that belongs to nobody takes the place of ours, which is given up first.
        self.growth = watch::Sender::new(Seq::ZERO).subscribe();
        self.topic.feed.forget_if_alone();
    }
}
