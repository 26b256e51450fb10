//! What is known of each topic while it is in use: its rules, its limit, its followers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use prombus_engine::{Durability, Engine, Retention};
use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

use crate::limits::Limit;
use crate::metrics::{Metrics, TopicSeries};
use crate::topics::feed::Feed;
use crate::topics::remote_appends;
use crate::topics::{Settings, TopicRules, TopicSettings};

/// One topic in use.
#[derive(Debug)]
pub(crate) struct TopicInUse {
    pub(crate) topic: Topic,
    is_buffered: AtomicBool,
    pub(crate) limit: Limit,
    pub(crate) feed: Arc<Feed>,
    /// Whether somebody tells the feed what other gateways wrote.
    pub(crate) is_told: Mutex<bool>,
    metrics: Arc<Metrics>,
    series: OnceLock<TopicSeries>,
}

#[derive(Debug)]
pub(crate) struct Topics {
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    known: RwLock<Known>,
    configuring: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Known {
    in_use: HashMap<Topic, Arc<TopicInUse>>,
    /// At this many, those that nobody needs are dropped.
    sweep_at: usize,
    /// What was set while the bus ran, now or in an earlier life.
    own: HashMap<Topic, TopicSettings>,
    /// Which of several rules for one topic is the newest.
    revision: u64,
}

const FIRST_SWEEP: usize = 1024;

impl TopicInUse {
    fn new(topic: &Topic, rules: &TopicRules, metrics: Arc<Metrics>, now: Instant) -> Self {
        Self {
            topic: topic.clone(),
            is_buffered: AtomicBool::new(rules.durability == Durability::Buffered),
            limit: Limit::new(rules.rate, now),
            feed: Arc::new(Feed::new()),
            is_told: Mutex::new(false),
            metrics,
            series: OnceLock::new(),
        }
    }

    /// Its series, which it has from its first event on: not every name that somebody asks for is
    /// worth one.
    pub(crate) fn series(&self) -> &TopicSeries {
        self.series.get_or_init(|| self.metrics.topic(&self.topic))
    }

    pub(crate) fn durability(&self) -> Durability {
        if self.is_buffered.load(Ordering::Relaxed) {
            Durability::Buffered
        } else {
            Durability::Fsync
        }
    }

    /// Wakes whoever waits when there is something new, also where another gateway wrote it.
    pub(crate) fn watch(self: &Arc<Self>, engine: &Arc<dyn Engine>) -> watch::Receiver<Seq> {
        let growth = self.feed.watch();
        if engine.capabilities().several_gateways {
            remote_appends::tell(engine, self);
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
    /// `revision` has to be larger than that of any earlier life.
    pub(crate) fn new(settings: Arc<Settings>, revision: u64, metrics: Arc<Metrics>) -> Self {
        let known =
            Known { in_use: HashMap::new(), sweep_at: FIRST_SWEEP, own: HashMap::new(), revision };
        let configuring = tokio::sync::Mutex::new(());
        Self { settings, metrics, known: RwLock::new(known), configuring }
    }

    /// The turn of whoever changes what was set.
    pub(crate) async fn configuring(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.configuring.lock().await
    }

    pub(crate) fn get(&self, topic: &Topic, now: Instant) -> Arc<TopicInUse> {
        if let Some(topic) = self.read().in_use.get(topic) {
            return Arc::clone(topic);
        }
        let mut known = self.write();
        known.sweep(now);
        let rules = self.rules_in(&known, topic);
        let made = known.in_use.entry(topic.clone());
        let made = made.or_insert_with(|| {
            Arc::new(TopicInUse::new(topic, &rules, Arc::clone(&self.metrics), now))
        });
        Arc::clone(made)
    }

    /// From now on `own` holds for `topic`, in use or not. Answers what it has to keep, by a rule
    /// that is newer than all before, of `revision` or more.
    pub(crate) fn set_own(
        &self,
        topic: &Topic,
        own: TopicSettings,
        revision: u64,
        now: Instant,
    ) -> Retention {
        let mut known = self.write();
        known.own.insert(topic.clone(), own);
        known.revision = (known.revision + 1).max(revision);
        let rules = self.rules_in(&known, topic);
        if let Some(in_use) = known.in_use.get(topic) {
            in_use.apply(&rules, now);
        }
        known.retention(&rules)
    }

    /// Takes up what was set for `topic` earlier, or by another gateway.
    pub(crate) fn recall_own(&self, topic: &Topic, own: TopicSettings, now: Instant) {
        if self.own(topic) != Some(own) {
            self.set_own(topic, own, 0, now);
        }
    }

    /// From now on all rules are of `revision`, if they are not newer already.
    pub(crate) fn renew(&self, revision: u64) {
        let mut known = self.write();
        known.revision = known.revision.max(revision);
    }

    /// What was set for `topic` while the bus ran, if anything was.
    pub(crate) fn own(&self, topic: &Topic) -> Option<TopicSettings> {
        self.read().own.get(topic).copied()
    }

    pub(crate) fn rules(&self, topic: &Topic) -> TopicRules {
        self.rules_in(&self.read(), topic)
    }

    /// The topics that somebody configured, in a file or while the bus ran.
    pub(crate) fn configured(&self) -> Vec<Topic> {
        self.configured_in(&self.read()).cloned().collect()
    }

    pub(crate) fn is_configured(&self, topic: &Topic) -> bool {
        self.settings.topics.contains_key(topic) || self.read().own.contains_key(topic)
    }

    /// What each topic that may forget has to keep.
    pub(crate) fn retentions(&self) -> Vec<(Topic, Retention)> {
        let known = self.read();
        self.configured_in(&known)
            .map(|topic| (topic.clone(), known.retention(&self.rules_in(&known, topic))))
            .filter(|(_, rule)| rule.max_age_ms.is_some() || rule.max_bytes.is_some())
            .collect()
    }

    fn configured_in<'a>(&'a self, known: &'a Known) -> impl Iterator<Item = &'a Topic> {
        let in_file = self.settings.topics.keys();
        in_file.chain(known.own.keys().filter(|topic| !self.settings.topics.contains_key(*topic)))
    }

    fn rules_in(&self, known: &Known, topic: &Topic) -> TopicRules {
        let own = known.own.get(topic).copied().unwrap_or_default();
        self.settings.rules(topic, &own)
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
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

    /// Forgets topics that are as if they had never been used, now and then.
    fn sweep(&mut self, now: Instant) {
        if self.in_use.len() < self.sweep_at {
            return;
        }
        self.in_use.retain(|_, topic| Arc::strong_count(topic) > 1 || !topic.limit.is_full(now));
        self.sweep_at = (self.in_use.len() * 2).max(FIRST_SWEEP);
    }
}
