//! What is known of each topic while it is in use: its settings, its limit, its followers.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use prombus_engine::Durability;
use prombus_proto::Topic;

use crate::feed::Feed;
use crate::limits::Limit;
use crate::metrics::{Metrics, TopicSeries};
use crate::settings::Settings;

/// One topic in use.
#[derive(Debug)]
pub(crate) struct TopicInUse {
    pub(crate) topic: Topic,
    pub(crate) durability: Durability,
    pub(crate) limit: Limit,
    pub(crate) feed: Arc<Feed>,
    pub(crate) series: TopicSeries,
}

#[derive(Debug)]
pub(crate) struct Topics {
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    in_use: RwLock<InUse>,
}

#[derive(Debug)]
struct InUse {
    topics: HashMap<Topic, Arc<TopicInUse>>,
    /// At this many, those that nobody needs are dropped.
    sweep_at: usize,
}

const FIRST_SWEEP: usize = 1024;

impl Topics {
    pub(crate) fn new(settings: Arc<Settings>, metrics: Arc<Metrics>) -> Self {
        let in_use = InUse { topics: HashMap::new(), sweep_at: FIRST_SWEEP };
        Self { settings, metrics, in_use: RwLock::new(in_use) }
    }

    pub(crate) fn get(&self, topic: &Topic, now: Instant) -> Arc<TopicInUse> {
        if let Some(known) = self.known(topic) {
            return known;
        }
        let mut in_use = self.in_use.write().unwrap_or_else(PoisonError::into_inner);
        in_use.sweep(now);
        let made = in_use.topics.entry(topic.clone()).or_insert_with(|| {
            Arc::new(TopicInUse {
                topic: topic.clone(),
                durability: self.settings.durability(topic),
                limit: Limit::new(self.settings.topic_rate(topic), now),
                feed: Arc::new(Feed::new()),
                series: self.metrics.topic(topic),
            })
        });
        Arc::clone(made)
    }

    fn known(&self, topic: &Topic) -> Option<Arc<TopicInUse>> {
        let in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        in_use.topics.get(topic).cloned()
    }
}

impl InUse {
    /// Forgets topics that are as if they had never been used, now and then.
    fn sweep(&mut self, now: Instant) {
        if self.topics.len() < self.sweep_at {
            return;
        }
        self.topics.retain(|_, topic| Arc::strong_count(topic) > 1 || !topic.limit.is_full(now));
        self.sweep_at = (self.topics.len() * 2).max(FIRST_SWEEP);
    }
}
