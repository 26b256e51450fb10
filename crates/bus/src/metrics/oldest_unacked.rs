//! How long the oldest delivered event of each group is open.
//!
//! A group notes when that event was delivered first; how long ago that is, is computed when somebody asks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prombus_proto::{Group, Topic};

use crate::time::now;

/// The groups in memory.
#[derive(Clone, Debug)]
pub(super) struct OpenGroups {
    started: Instant,
    groups: Arc<Mutex<Registered>>,
}

#[derive(Debug, Default)]
struct Registered {
    next: u64,
    groups: HashMap<u64, Arc<Open>>,
}

/// One group in memory.
#[derive(Debug)]
struct Open {
    /// `None` if it has no series of its own.
    pair: Option<(Topic, Group)>,
    /// Microseconds from the start to the delivery, plus one; 0 if nothing is open.
    since: AtomicU64,
}

/// A group's handle, which removes it when it is dropped.
#[derive(Debug)]
pub(crate) struct OldestUnacked {
    id: u64,
    open: Arc<Open>,
    all: OpenGroups,
}

impl Default for OpenGroups {
    fn default() -> Self {
        Self { started: now(), groups: Arc::default() }
    }
}

impl OpenGroups {
    /// Adds a group. Without a `pair`, it is counted with all others that have none.
    pub(super) fn add(&self, pair: Option<(Topic, Group)>) -> OldestUnacked {
        let open = Arc::new(Open { pair, since: AtomicU64::new(0) });
        let mut registered = self.groups.lock();
        registered.next += 1;
        let id = registered.next;
        registered.groups.insert(id, Arc::clone(&open));
        drop(registered);
        OldestUnacked { id, open, all: self.clone() }
    }

    /// Returns the age of each pair, and the highest of those without series of their own.
    pub(super) fn ages(&self) -> Vec<(Option<(Topic, Group)>, Duration)> {
        let elapsed = now().saturating_duration_since(self.started);
        let mut ages = HashMap::new();
        for open in self.groups.lock().groups.values() {
            let since = open.since.load(Ordering::Relaxed).checked_sub(1);
            let age = since.map(|since| elapsed.saturating_sub(Duration::from_micros(since)));
            let known: &mut Duration = ages.entry(open.pair.clone()).or_default();
            *known = (*known).max(age.unwrap_or_default());
        }
        ages.into_iter().collect()
    }
}

impl OldestUnacked {
    /// Sets when the oldest event that is open was delivered first.
    pub(crate) fn set(&self, delivered: Option<Instant>) {
        let micros = |at: Instant| at.saturating_duration_since(self.all.started).as_micros();
        let since = delivered.map_or(0, |at| u64::try_from(micros(at) + 1).unwrap_or(u64::MAX));
        self.open.since.store(since, Ordering::Relaxed);
    }
}

impl Drop for OldestUnacked {
    fn drop(&mut self) {
        self.all.groups.lock().groups.remove(&self.id);
    }
}
