//! How many topics there are and how many groups each has, and permits to create more.
//!
//! A topic counts once it has an event, settings or a group: a group of a topic that has nothing else would
//! otherwise escape every limit. The store is read at the start and whatever this process creates is added;
//! what other gateways create is added with a delay, so together they may exceed a limit a little.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prombus_engine::{Engine, ReadError};
use prombus_proto::{ErrorCode, Topic};
use tokio::time::MissedTickBehavior;

use crate::error::Refusal;
use crate::metrics::{CountLimit, CountRefusals};
use crate::stored::StatePages;
use crate::stored::cursor::Cursor;

/// Counts topics and groups.
#[derive(Debug)]
pub(crate) struct Census {
    /// `None` counts nothing, because everything is allowed.
    max: Option<CensusLimits>,
    topics: Mutex<HashMap<Topic, TopicCount>>,
    /// Counts deletions: what was read before one says nothing about what is there after it.
    deletions: AtomicU64,
    refused: CountRefusals,
}

/// The numbers that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CensusLimits {
    pub topics: usize,
    pub groups_per_topic: usize,
}

/// A number that one more topic or group would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExceededCount {
    limit: CountLimit,
    max: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct TopicCount {
    /// Whether it is stored. Otherwise it is about to be created, or not, by the holders of its permits.
    exists: bool,
    groups: usize,
    topic_permits: usize,
    group_permits: usize,
}

/// Room for a topic that an event or settings are about to create. It stays taken while this lives, and
/// then if the topic has come into being.
#[derive(Debug)]
pub(crate) struct TopicPermit {
    census: Arc<Census>,
    topic: Topic,
}

/// Room for a group that is about to be created, like [`TopicPermit`].
#[derive(Debug)]
pub(crate) struct GroupPermit {
    census: Arc<Census>,
    topic: Topic,
    is_created: bool,
}

/// How often gateways of a shared store count what the others have created.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(60);

impl Census {
    pub(crate) fn new(max: Option<CensusLimits>, refused: CountRefusals) -> Self {
        Self { max, topics: Mutex::default(), deletions: AtomicU64::new(0), refused }
    }

    /// Returns `true` if `topic` need not be asked about: it is counted, or nothing is.
    pub(crate) fn has(&self, topic: &Topic) -> bool {
        self.max.is_none() || self.topics.lock().get(topic).is_some_and(|count| count.exists)
    }

    /// Reserves room for `topic` if it does not exist.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if there are as many topics as are allowed.
    pub(crate) fn permit_topic(
        self: &Arc<Self>,
        topic: &Topic,
    ) -> Result<Option<TopicPermit>, Refusal> {
        let Some(max) = self.max else { return Ok(None) };
        let mut topics = self.topics.lock();
        let count =
            max.count_of(&mut topics, topic).map_err(|exceeded| self.refused(exceeded, topic))?;
        if count.exists {
            return Ok(None);
        }
        count.topic_permits += 1;
        Ok(Some(TopicPermit { census: Arc::clone(self), topic: topic.clone() }))
    }

    /// Reserves room for one more group of `topic`.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if there are as many groups or topics as are allowed.
    pub(crate) fn permit_group(
        self: &Arc<Self>,
        topic: &Topic,
    ) -> Result<Option<GroupPermit>, Refusal> {
        let permit = self.find_room_for_group(topic);
        permit.map_err(|exceeded| self.refused(exceeded, topic))
    }

    fn find_room_for_group(
        self: &Arc<Self>,
        topic: &Topic,
    ) -> Result<Option<GroupPermit>, ExceededCount> {
        let Some(max) = self.max else { return Ok(None) };
        let mut topics = self.topics.lock();
        let count = max.count_of(&mut topics, topic)?;
        if count.groups + count.group_permits >= max.groups_per_topic {
            return Err(ExceededCount { limit: CountLimit::Groups, max: max.groups_per_topic });
        }
        count.group_permits += 1;
        Ok(Some(GroupPermit { census: Arc::clone(self), topic: topic.clone(), is_created: false }))
    }

    /// Counts a refusal, and returns it.
    fn refused(&self, exceeded: ExceededCount, topic: &Topic) -> Refusal {
        let ExceededCount { limit, max } = exceeded;
        self.refused.count(limit);
        let message = match limit {
            CountLimit::Topics => {
                format!("there are as many topics as the server allows: limits.max_topics is {max}")
            }
            CountLimit::Groups => format!(
                "{topic} has as many groups as a topic may have: limits.max_groups_per_topic is {max}"
            ),
        };
        Refusal::new(ErrorCode::LimitExceeded, message)
    }

    /// Counts a topic that was created.
    pub(crate) fn topic_created(&self, topic: &Topic) {
        if self.max.is_some() {
            self.topics.lock().entry(topic.clone()).or_default().exists = true;
        }
    }

    /// Counts a topic no more, nor its groups: it was deleted.
    pub(crate) fn topic_deleted(&self, topic: &Topic) {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        self.release(topic, |count| {
            count.exists = false;
            count.groups = 0;
        });
    }

    /// Counts one group less: it was deleted.
    pub(crate) fn group_deleted(&self, topic: &Topic) {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        self.release(topic, |count| count.groups = count.groups.saturating_sub(1));
    }

    /// Counts what the store holds, besides the topics of `configured`.
    pub(crate) async fn count(
        &self,
        engine: &dyn Engine,
        configured: Vec<Topic>,
    ) -> Result<(), ReadError> {
        if self.max.is_none() {
            return Ok(());
        }
        let deletions = self.deletions.load(Ordering::Relaxed);
        let mut found: HashMap<Topic, usize> = HashMap::new();
        for topic in engine.topics().await?.into_iter().chain(configured) {
            found.entry(topic).or_default();
        }
        let mut cursors = StatePages::new(engine, Cursor::prefix());
        loop {
            let page = match cursors.next().await {
                Ok(page) => page,
                Err(ReadError::Damaged(damaged)) => {
                    tracing::warn!("not all groups count against their limit: {damaged}");
                    break;
                }
                Err(error) => return Err(error),
            };
            if page.is_empty() {
                break;
            }
            for entry in page {
                if let Some((topic, _)) = Cursor::names_at(&entry.key) {
                    *found.entry(topic).or_default() += 1;
                }
            }
        }
        let mut topics = self.topics.lock();
        if self.deletions.load(Ordering::Relaxed) != deletions {
            // The next count includes what was missed now.
            return Ok(());
        }
        for (topic, groups) in found {
            let count = topics.entry(topic).or_default();
            count.exists = true;
            // Topics and groups that were created meanwhile may be missing in what was read.
            count.groups = count.groups.max(groups);
        }
        Ok(())
    }

    fn release(&self, topic: &Topic, change: impl FnOnce(&mut TopicCount)) {
        let mut topics = self.topics.lock();
        let Entry::Occupied(mut count) = topics.entry(topic.clone()) else { return };
        change(count.get_mut());
        let TopicCount { exists, topic_permits, group_permits, .. } = *count.get();
        if !exists && topic_permits == 0 && group_permits == 0 {
            count.remove();
        }
    }
}

impl CensusLimits {
    /// Returns the count of `topic`, which is a new one if there is room for it.
    fn count_of<'a>(
        &self,
        topics: &'a mut HashMap<Topic, TopicCount>,
        topic: &Topic,
    ) -> Result<&'a mut TopicCount, ExceededCount> {
        if topics.len() >= self.topics && !topics.contains_key(topic) {
            return Err(ExceededCount { limit: CountLimit::Topics, max: self.topics });
        }
        Ok(topics.entry(topic.clone()).or_default())
    }
}

impl GroupPermit {
    /// Counts the group: it is stored.
    pub(crate) fn created(mut self) {
        self.is_created = true;
    }
}

impl Drop for TopicPermit {
    fn drop(&mut self) {
        self.census.release(&self.topic, |count| count.topic_permits -= 1);
    }
}

impl Drop for GroupPermit {
    fn drop(&mut self) {
        self.census.release(&self.topic, |count| {
            count.group_permits -= 1;
            if self.is_created {
                count.groups += 1;
                count.exists = true;
            }
        });
    }
}

/// Counts what other gateways create, periodically.
pub(crate) async fn keep_census_current(
    engine: Arc<dyn Engine>,
    census: Arc<Census>,
    configured: impl Fn() -> Vec<Topic>,
) {
    let mut ticks = tokio::time::interval(RECOUNT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The store has just been counted.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        if let Err(error) = census.count(engine.as_ref(), configured()).await {
            tracing::debug!(
                "cannot count topics and groups: {error}; retrying in {RECOUNT_INTERVAL:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(topics: usize, groups_per_topic: usize) -> Arc<Census> {
        let limits = CensusLimits { topics, groups_per_topic };
        Arc::new(Census::new(Some(limits), CountRefusals::default()))
    }

    fn named(topic: &str) -> Topic {
        Topic::new(topic).unwrap()
    }

    #[test]
    fn a_permit_that_creates_nothing_gives_its_room_back() {
        let census = census(2, 1);
        let (one, two, three) = (named("one"), named("two"), named("three"));
        let permits = [&one, &one, &two].map(|topic| census.permit_topic(topic).unwrap().unwrap());
        assert_eq!(census.permit_topic(&three).unwrap_err().code, ErrorCode::LimitExceeded);
        census.permit_group(&three).unwrap_err();
        census.topic_created(&one);
        drop(permits);
        assert!(census.permit_topic(&one).unwrap().is_none(), "it exists");
        let third = census.permit_topic(&three).unwrap();
        census.permit_topic(&two).unwrap_err();
        drop(third);
        assert_eq!(census.topics.lock().len(), 1, "refused names leave nothing behind");
    }

    #[test]
    fn a_topic_that_has_only_groups_counts() {
        let census = census(1, 2);
        let (one, two) = (named("one"), named("two"));
        census.permit_group(&one).unwrap().unwrap().created();
        assert_eq!(census.permit_topic(&two).unwrap_err().code, ErrorCode::LimitExceeded);
        let second = census.permit_group(&one).unwrap();
        census.permit_group(&one).unwrap_err();
        drop(second);
        census.permit_group(&one).unwrap().unwrap().created();
        assert_eq!(census.permit_group(&one).unwrap_err().code, ErrorCode::LimitExceeded);
    }
}
