//! Commits of one engine to the same topic run one after the other.
//!
//! Between gateways the database decides which commit wins, and the others retry. Within one
//! gateway those retries would be wasted work.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

type TopicLock = AsyncMutex<()>;

#[derive(Debug, Default)]
pub(crate) struct TopicLocks {
    by_topic: Mutex<HashMap<String, Weak<TopicLock>>>,
    exclusive: Arc<TopicLock>,
}

/// Locks that are released when it is dropped.
pub(crate) struct TopicGuards {
    _guards: Vec<OwnedMutexGuard<()>>,
}

/// Unused locks are removed once the map has this many entries.
const SWEEP_AT: usize = 1024;

impl TopicLocks {
    /// Locks every one of `topics`. They are sorted, so two commits never wait for each other.
    pub(crate) async fn lock(&self, topics: BTreeSet<&str>) -> TopicGuards {
        let mut guards = Vec::with_capacity(topics.len());
        for topic in topics {
            guards.push(self.lock_of(topic).lock_owned().await);
        }
        TopicGuards { _guards: guards }
    }

    /// Excludes all other commits, for a database without transactions.
    pub(crate) async fn lock_exclusive(&self) -> TopicGuards {
        TopicGuards { _guards: vec![self.exclusive.clone().lock_owned().await] }
    }

    fn lock_of(&self, topic: &str) -> Arc<TopicLock> {
        let mut by_topic = self.by_topic.lock();
        if let Some(lock) = by_topic.get(topic).and_then(Weak::upgrade) {
            return lock;
        }
        if by_topic.len() >= SWEEP_AT {
            by_topic.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(TopicLock::new(()));
        by_topic.insert(topic.to_owned(), Arc::downgrade(&lock));
        lock
    }
}
