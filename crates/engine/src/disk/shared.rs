//! The state that the threads of a disk engine share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

use super::backup::pins::Pins;
use super::checkpoint::pending::PendingCheckpoints;
use super::ids::IdIndex;
use super::ids::recent::RecentIds;
use super::meter::Meter;
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
    pub(crate) meter: Meter,
    pub(crate) pins: Pins,
    /// Set when an id run turns out to be damaged or missing: the checkpoint thread rebuilds them.
    pub(crate) id_rebuild_requested: AtomicBool,
    /// Set when the engine is being closed: the checkpoint thread no longer waits for disk space.
    pub(crate) closing: AtomicBool,
    view: RwLock<View>,
    /// Deleted topics that the catalog no longer has since the checkpoint of this WAL file.
    forgettable: Mutex<Vec<(Vec<Topic>, u64)>>,
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
            meter: Meter::default(),
            pins: Pins::default(),
            id_rebuild_requested: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            layout,
            options,
            view: RwLock::new(view),
            forgettable: Mutex::default(),
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
        let last = self.view().topics.get(topic).map_or(Seq::ZERO, |view| view.bounds().last());
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

    /// Closes the channels of the watchers of `topics`.
    pub(crate) fn end_watches_of(&self, topics: &[Topic]) {
        if topics.is_empty() {
            return;
        }
        if let Some(watchers) = self.watchers.lock().as_mut() {
            topics.iter().for_each(|topic| drop(watchers.remove(topic)));
        }
    }

    /// Records deleted topics that the catalog does not have since the checkpoint of WAL file `checkpointed`.
    pub(crate) fn may_forget(&self, topics: Vec<Topic>, checkpointed: u64) {
        self.forgettable.lock().push((topics, checkpointed));
    }

    /// Drops such topics from the view. Only the journal may do so: what it has staged would continue the
    /// numbering of a topic that is gone.
    pub(crate) fn forget_deleted_topics(&self) {
        let forgettable = std::mem::take(&mut *self.forgettable.lock());
        if !forgettable.is_empty() {
            let mut view = self.view_mut();
            for (topics, checkpointed) in forgettable {
                view.forget_deleted(&topics, checkpointed);
            }
        }
    }

    pub(crate) fn end_watches(&self) {
        *self.watchers.lock() = None;
    }
}
