//! The state that the threads of a disk engine share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

use super::checkpoint::pending::PendingCheckpoints;
use super::ids::IdIndex;
use super::ids::recent::RecentIds;
use super::options::DiskOptions;
use super::read::view::View;
use super::state::StateRuns;
use super::storage::file_cache::FileCache;
use super::storage::layout::Layout;
use crate::{Condition, Incident};

/// The state that readers, the journal and the checkpoint thread share.
///
/// Lock order: `ids` or `watchers`, then `view`, then `incidents`.
pub(crate) struct Shared {
    pub(crate) layout: Layout,
    pub(crate) options: DiskOptions,
    pub(crate) file_cache: FileCache,
    pub(crate) pending_checkpoints: PendingCheckpoints,
    /// Set when an id run turns out to be damaged or missing: the checkpoint thread rebuilds them.
    pub(crate) id_rebuild_requested: AtomicBool,
    /// Set when the engine is being closed: the checkpoint thread no longer waits for disk space.
    pub(crate) closing: AtomicBool,
    view: RwLock<View>,
    ids: RwLock<IdTables>,
    state_runs: RwLock<StateRuns>,
    incidents: Mutex<Vec<Incident>>,
    condition: Mutex<Condition>,
    /// `None` after the engine is closed.
    watchers: Mutex<Option<HashMap<Topic, watch::Sender<Seq>>>>,
}

/// Every id that is looked up without reading segments.
#[derive(Debug, Default)]
pub(crate) struct IdTables {
    /// The ids in the WAL file that is being written.
    pub(crate) newest: RecentIds,
    pub(crate) index: IdIndex,
}

/// A single damaged file can cause many incidents; further ones are dropped.
const MAX_INCIDENTS: usize = 1000;

impl Shared {
    pub(crate) fn new(layout: Layout, options: DiskOptions, view: View) -> Self {
        Self {
            file_cache: FileCache::new(layout.fs().clone(), options.open_files),
            pending_checkpoints: PendingCheckpoints::default(),
            id_rebuild_requested: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            layout,
            options,
            view: RwLock::new(view),
            ids: RwLock::default(),
            state_runs: RwLock::default(),
            incidents: Mutex::default(),
            condition: Mutex::new(Condition::Healthy),
            watchers: Mutex::new(Some(HashMap::new())),
        }
    }

    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read()
    }

    pub(crate) fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write()
    }

    pub(crate) fn ids(&self) -> RwLockReadGuard<'_, IdTables> {
        self.ids.read()
    }

    pub(crate) fn ids_mut(&self) -> RwLockWriteGuard<'_, IdTables> {
        self.ids.write()
    }

    pub(crate) fn state_runs(&self) -> StateRuns {
        self.state_runs.read().clone()
    }

    pub(crate) fn set_state_runs(&self, runs: StateRuns) {
        *self.state_runs.write() = runs;
    }

    pub(crate) fn report(&self, incident: Incident) {
        let mut incidents = self.incidents.lock();
        if incidents.len() < MAX_INCIDENTS && !incidents.contains(&incident) {
            incidents.push(incident);
        }
    }

    /// Reports damage to a file whose content is also stored elsewhere.
    pub(crate) fn report_rebuilt(&self, file: &Path, detail: impl Into<String>) {
        self.report(Incident::Rebuilt { file: file.to_owned(), detail: detail.into() });
    }

    /// Reports a damaged id run and requests that all of them are rebuilt.
    pub(crate) fn report_damaged_ids(&self, file: &Path, detail: impl Into<String>) {
        self.report_rebuilt(file, detail);
        self.id_rebuild_requested.store(true, Ordering::SeqCst);
    }

    pub(crate) fn incidents(&self) -> Vec<Incident> {
        self.incidents.lock().clone()
    }

    pub(crate) fn condition(&self) -> Condition {
        self.condition.lock().clone()
    }

    /// Sets the condition. A poisoned engine stays poisoned until it is closed; a closed one stays
    /// closed.
    pub(crate) fn set_condition(&self, condition: Condition) {
        let mut current = self.condition.lock();
        let closing = condition == Condition::Closed;
        if closing || matches!(*current, Condition::Healthy | Condition::Full(_)) {
            *current = condition;
        }
    }

    pub(crate) fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        let mut watchers = self.watchers.lock();
        let Some(watchers) = watchers.as_mut() else {
            return watch::Sender::new(Seq::ZERO).subscribe();
        };
        let last = self.view().topics.get(topic).map_or(Seq::ZERO, |view| view.next.previous());
        let sender = watchers.entry(topic.clone()).or_insert_with(|| watch::Sender::new(last));
        sender.send_if_modified(|seen| std::mem::replace(seen, last.max(*seen)) < last);
        sender.subscribe()
    }

    /// Wakes the watchers of `topics`, which come with their last `seq`.
    pub(crate) fn wake<'a>(&self, topics: impl Iterator<Item = (&'a Topic, Seq)>) {
        let mut watchers = self.watchers.lock();
        let Some(watchers) = watchers.as_mut().filter(|watchers| !watchers.is_empty()) else {
            return;
        };
        for (topic, last) in topics {
            if let Some(sender) = watchers.get(topic) {
                if sender.receiver_count() == 0 {
                    watchers.remove(topic);
                } else {
                    sender.send_if_modified(|seen| std::mem::replace(seen, last.max(*seen)) < last);
                }
            }
        }
    }

    pub(crate) fn end_watches(&self) {
        *self.watchers.lock() = None;
    }
}
