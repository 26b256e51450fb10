//! The topics in use: their settings, rate limits and feeds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use prombus_engine::{Durability, Engine, Position, Retention};
use prombus_proto::{Group, Seq, Topic};
use tokio::sync::watch;

use crate::error::Refusal;
use crate::limits::{Census, RateLimit, TopicPermit};
use crate::metrics::{Metrics, TopicSeries};
use crate::topics::feed::Feed;
use crate::topics::feed_memory::FeedMemory;
use crate::topics::remote_appends;
use crate::topics::{Settings, TopicRules, TopicSettings};

/// A topic that is published to, followed, or consumed.
#[derive(Debug)]
pub(crate) struct TopicInUse {
    pub(crate) topic: Topic,
    is_buffered: AtomicBool,
    pub(crate) limit: RateLimit,
    census: Arc<Census>,
    /// Whether the census has the topic. Turns false when the topic is deleted.
    is_counted: AtomicBool,
    pub(crate) feed: Arc<Feed>,
    /// Whether a task wakes the feed for events of other gateways (`remote_appends`).
    pub(crate) watches_remote_appends: Mutex<bool>,
    metrics: Arc<Metrics>,
    series: RwLock<Option<TopicSeries>>,
}

#[derive(Debug)]
pub(crate) struct Topics {
    settings: Arc<Settings>,
    feeds: Arc<FeedMemory>,
    metrics: Arc<Metrics>,
    census: Arc<Census>,
    known: RwLock<Known>,
    settings_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Known {
    in_use: HashMap<Topic, Arc<TopicInUse>>,
    /// At this number of topics, unused ones are removed.
    sweep_at: usize,
    /// Settings that were changed at run time, by this process or an earlier one.
    own: HashMap<Topic, TopicSettings>,
    /// The revision of the retention rules; the highest supersedes the others.
    revision: u64,
}

const FIRST_SWEEP: usize = 1024;

impl TopicInUse {
    fn new(
        topic: &Topic,
        rules: &TopicRules,
        feed: Feed,
        metrics: Arc<Metrics>,
        census: Arc<Census>,
        now: Instant,
    ) -> Self {
        Self {
            is_counted: AtomicBool::new(census.has(topic)),
            census,
            topic: topic.clone(),
            is_buffered: AtomicBool::new(rules.durability == Durability::Buffered),
            limit: RateLimit::new(rules.rate, now),
            feed: Arc::new(feed),
            watches_remote_appends: Mutex::new(false),
            metrics,
            series: RwLock::new(None),
        }
    }

    /// Reserves room for the topic if an event is about to create it.
    pub(crate) fn permit(&self) -> Result<Option<TopicPermit>, Refusal> {
        if self.is_counted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let permit = self.census.permit_topic(&self.topic)?;
        if permit.is_none() {
            self.is_counted.store(true, Ordering::Relaxed);
        }
        Ok(permit)
    }

    /// Counts the topic: it has an event.
    pub(crate) fn created(&self) {
        if !self.is_counted.load(Ordering::Relaxed) {
            self.census.topic_created(&self.topic);
            self.is_counted.store(true, Ordering::Relaxed);
        }
    }

    /// Counts stored events. Its metrics are registered with its first event: a topic that is only read, or
    /// does not exist, has none.
    pub(crate) fn count(&self, stored: &[Position]) {
        if let Some(series) = &*self.series.read() {
            return series.committed(stored);
        }
        let mut series = self.series.write();
        series.get_or_insert_with(|| self.metrics.topic(&self.topic)).committed(stored);
    }

    /// Forgets everything that is known of the topic's events: it was deleted.
    pub(crate) fn deleted(&self) {
        self.feed.reset();
        *self.series.write() = None;
        self.metrics.forget_topic(&self.topic);
        self.census.topic_deleted(&self.topic);
        self.is_counted.store(false, Ordering::Relaxed);
    }

    pub(crate) fn durability(&self) -> Durability {
        if self.is_buffered.load(Ordering::Relaxed) {
            Durability::Buffered
        } else {
            Durability::Fsync
        }
    }

    /// Returns a receiver that is notified of new events, including those of other gateways.
    pub(crate) fn watch(self: &Arc<Self>, engine: &Arc<dyn Engine>) -> watch::Receiver<Seq> {
        let growth = self.feed.watch();
        if engine.capabilities().several_gateways {
            remote_appends::watch(engine, self);
        }
        growth
    }

    fn apply(&self, rules: &TopicRules, now: Instant) {
        self.is_buffered.store(rules.durability == Durability::Buffered, Ordering::Relaxed);
        if let Some(rate) = rules.rate {
            self.limit.set_rate(rate, now);
        }
    }
}

impl Topics {
    /// `revision` has to be higher than that of any earlier process.
    pub(crate) fn new(
        settings: Arc<Settings>,
        revision: u64,
        feeds: FeedMemory,
        metrics: Arc<Metrics>,
    ) -> Self {
        let known =
            Known { in_use: HashMap::new(), sweep_at: FIRST_SWEEP, own: HashMap::new(), revision };
        let settings_lock = tokio::sync::Mutex::new(());
        let census = Arc::new(Census::new(settings.max_counts, metrics.count_refusals()));
        let feeds = Arc::new(feeds);
        Self { settings, feeds, metrics, census, known: RwLock::new(known), settings_lock }
    }

    pub(crate) const fn census(&self) -> &Arc<Census> {
        &self.census
    }

    /// Locks out other changes of the settings.
    pub(crate) async fn lock_settings(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.settings_lock.lock().await
    }

    /// Returns `topic` if it is in use.
    pub(crate) fn find(&self, topic: &Topic) -> Option<Arc<TopicInUse>> {
        self.known.read().in_use.get(topic).cloned()
    }

    /// Returns `topic` to publish to, with room for it if it does not exist. A topic without room is not
    /// remembered.
    pub(crate) fn permit(
        &self,
        topic: &Topic,
        now: Instant,
    ) -> Result<(Arc<TopicInUse>, Option<TopicPermit>), Refusal> {
        let permit = match self.find(topic) {
            Some(known) => {
                let permit = known.permit()?;
                return Ok((known, permit));
            }
            None => self.census.permit_topic(topic)?,
        };
        Ok((self.get(topic, now), permit))
    }

    pub(crate) fn get(&self, topic: &Topic, now: Instant) -> Arc<TopicInUse> {
        if let Some(topic) = self.find(topic) {
            return topic;
        }
        let mut known = self.known.write();
        known.sweep(now);
        let rules = self.rules_in(&known, topic);
        let entry = known.in_use.entry(topic.clone());
        let topic = entry.or_insert_with(|| {
            let feed = Feed::new(Arc::clone(&self.feeds));
            let (metrics, census) = (Arc::clone(&self.metrics), Arc::clone(&self.census));
            Arc::new(TopicInUse::new(topic, &rules, feed, metrics, census, now))
        });
        Arc::clone(topic)
    }

    /// Sets the run-time settings of `topic`, and returns its retention rule, whose revision is higher
    /// than all before and at least `revision`.
    pub(crate) fn set_own(
        &self,
        topic: &Topic,
        own: TopicSettings,
        revision: u64,
        now: Instant,
    ) -> Retention {
        let mut known = self.known.write();
        known.own.insert(topic.clone(), own);
        known.revision = (known.revision + 1).max(revision);
        let rules = self.rules_in(&known, topic);
        if let Some(in_use) = known.in_use.get(topic) {
            in_use.apply(&rules, now);
        }
        known.retention(&rules)
    }

    /// Sets the run-time settings of `topic` that were stored by an earlier process or another gateway.
    pub(crate) fn load_own(&self, topic: &Topic, own: TopicSettings, now: Instant) {
        if self.own(topic) != Some(own) {
            self.set_own(topic, own, 0, now);
        }
    }

    /// Forgets the run-time settings of a topic that was deleted, and that it exists.
    pub(crate) fn forget(&self, topic: &Topic, now: Instant) {
        let mut known = self.known.write();
        known.own.remove(topic);
        let rules = self.rules_in(&known, topic);
        match known.in_use.get(topic) {
            Some(in_use) => in_use.apply(&rules, now),
            None => self.metrics.forget_topic(topic),
        }
        if !known.in_use.contains_key(topic) {
            self.census.topic_deleted(topic);
        }
        if self.settings.topics.names_contain(topic) {
            // A topic of the configuration counts without events, too.
            self.census.topic_created(topic);
        }
    }

    /// Forgets a group that was deleted.
    pub(crate) fn group_deleted(&self, topic: &Topic, group: &Group) {
        self.metrics.forget_group(topic, group);
        self.census.group_deleted(topic);
    }

    /// Forgets the run-time settings of all topics but `stored`, which other gateways may have deleted.
    pub(crate) fn keep_own(&self, stored: &HashSet<Topic>, now: Instant) {
        let own: Vec<_> = self.known.read().own.keys().cloned().collect();
        for topic in own.iter().filter(|topic| !stored.contains(*topic)) {
            self.forget_own(topic, now);
        }
    }

    fn forget_own(&self, topic: &Topic, now: Instant) {
        let mut known = self.known.write();
        known.own.remove(topic);
        let rules = self.rules_in(&known, topic);
        if let Some(in_use) = known.in_use.get(topic) {
            in_use.apply(&rules, now);
        }
    }

    /// Raises the revision of all rules to `revision`.
    pub(crate) fn raise_revision(&self, revision: u64) {
        let mut known = self.known.write();
        known.revision = known.revision.max(revision);
    }

    /// Returns the run-time settings of `topic`, if it has any.
    pub(crate) fn own(&self, topic: &Topic) -> Option<TopicSettings> {
        self.known.read().own.get(topic).copied()
    }

    pub(crate) fn rules(&self, topic: &Topic) -> TopicRules {
        self.rules_in(&self.known.read(), topic)
    }

    /// Returns the topics with settings, from the configuration or set at run time.
    pub(crate) fn configured(&self) -> Vec<Topic> {
        self.configured_in(&self.known.read()).cloned().collect()
    }

    pub(crate) fn is_configured(&self, topic: &Topic) -> bool {
        self.settings.topics.names_contain(topic) || self.known.read().own.contains_key(topic)
    }

    /// Returns the retention rule of `topic`.
    pub(crate) fn retention(&self, topic: &Topic) -> Retention {
        let known = self.known.read();
        known.retention(&self.rules_in(&known, topic))
    }

    /// Returns the topics that have a retention rule: those with settings of their own, and those of `stored`
    /// that match a pattern.
    pub(crate) fn retained(&self, stored: Vec<Topic>) -> Vec<Topic> {
        let known = self.known.read();
        let mut topics: Vec<_> = self.configured_in(&known).cloned().chain(stored).collect();
        topics.sort_unstable();
        topics.dedup();
        topics.retain(|topic| self.rules_in(&known, topic).limit_retention());
        topics
    }

    /// Returns `true` if a pattern may limit the retention of any topic.
    pub(crate) fn retain_by_pattern(&self) -> bool {
        self.settings.topics.limit_retention_by_pattern()
    }

    fn configured_in<'a>(&'a self, known: &'a Known) -> impl Iterator<Item = &'a Topic> {
        let in_file = self.settings.topics.names();
        in_file.chain(known.own.keys().filter(|topic| !self.settings.topics.names_contain(topic)))
    }

    fn rules_in(&self, known: &Known, topic: &Topic) -> TopicRules {
        let own = known.own.get(topic).copied().unwrap_or_default();
        self.settings.rules(topic, &own)
    }
}

impl Known {
    fn retention(&self, rules: &TopicRules) -> Retention {
        Retention {
            max_age_ms: rules.retention_ms,
            max_bytes: rules.retention_bytes,
            revision: self.revision,
        }
    }

    /// Removes topics that no one uses and whose bucket is full, when there are many topics.
    fn sweep(&mut self, now: Instant) {
        if self.in_use.len() < self.sweep_at {
            return;
        }
        self.in_use.retain(|_, topic| Arc::strong_count(topic) > 1 || !topic.limit.is_full(now));
        self.sweep_at = (self.in_use.len() * 2).max(FIRST_SWEEP);
    }
}
