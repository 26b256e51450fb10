//! The recent events of all feeds share one budget. The feeds that were not used for the longest time give
//! way: their followers read from the engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::memory::{Budget, Share};
use crate::topics::recent::Recent;

/// The memory of all feeds of a bus.
#[derive(Debug)]
pub(crate) struct FeedMemory {
    budget: Budget,
    /// Feeds that may have recent events.
    holders: Mutex<Vec<Weak<Mutex<Recent>>>>,
    /// Counts uses of feeds.
    uses: AtomicU64,
}

/// The most that one feed keeps, whatever the budget.
const MAX_FEED_BYTES: usize = 8 << 20;

impl FeedMemory {
    pub(crate) const fn new(budget: Budget) -> Self {
        Self { budget, holders: Mutex::new(Vec::new()), uses: AtomicU64::new(0) }
    }

    pub(super) fn share(&self) -> Share {
        self.budget.share()
    }

    /// Returns the most that one feed may have: with less than two of them, the newest events of a feed could
    /// only be kept instead of those of another one.
    pub(super) fn max_feed_bytes(&self) -> usize {
        MAX_FEED_BYTES.min(self.budget.limit() / 2)
    }

    /// Returns the time of a use, which is later than all before.
    pub(super) fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a feed that has recent events now.
    pub(super) fn add(&self, recent: &Arc<Mutex<Recent>>) {
        self.holders.lock().push(Arc::downgrade(recent));
    }

    /// Makes feeds give way if the budget is exceeded. Frees an eighth of it, so that the search for them
    /// costs little.
    pub(super) fn make_room(&self) {
        let limit = self.budget.limit();
        if self.budget.in_use() <= limit {
            return;
        }
        let target = limit - limit / 8;
        let mut holders = self.holders.lock();
        let mut by_use: Vec<_> = holders.drain(..).filter_map(|holder| holder.upgrade()).collect();
        by_use.sort_by_cached_key(|recent| recent.lock().last_use());
        for recent in by_use {
            let mut locked = recent.lock();
            let is_empty = locked.is_empty();
            if !is_empty && self.budget.in_use() <= target {
                holders.push(Arc::downgrade(&recent));
                continue;
            }
            locked.give_way();
            if !is_empty {
                self.budget.count_refusal();
            }
        }
    }
}
