//! What the threads of a disk engine share.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use prombus_proto::{Seq, Topic};
use tokio::sync::watch;

use crate::disk::checkpoint::pending::Backlog;
use crate::disk::file_cache::OpenFiles;
use crate::disk::ids::recent::RecentIds;
use crate::disk::ids::{IdIndex, IndexDamaged};
use crate::disk::layout::Layout;
use crate::disk::options::DiskOptions;
use crate::disk::read::view::View;
use crate::disk::state::KeyedRuns;
use crate::{Condition, Incident};

/// What readers, the journal and the checkpoints share.
///
/// Who holds `ids` may take `view`, never the other way round; no other two are held together.
pub(crate) struct Shared {
    pub(crate) layout: Layout,
    pub(crate) options: DiskOptions,
    pub(crate) files: OpenFiles,
    pub(crate) backlog: Backlog,
    /// Set when a file of ids turned out damaged: the next checkpoint makes them anew.
    pub(crate) ids_wanted: AtomicBool,
    /// Set when the engine is being closed: nothing waits for the disk to have room any more.
    pub(crate) closing: AtomicBool,
    view: RwLock<View>,
    ids: RwLock<Ids>,
    keyed: RwLock<KeyedRuns>,
    incidents: Mutex<Vec<Incident>>,
    condition: Mutex<Condition>,
    /// Nothing once the engine is closed.
    watchers: Mutex<Option<HashMap<Topic, watch::Sender<Seq>>>>,
}

/// All that is known about ids.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// Those in the newest log file.
    pub(crate) newest: RecentIds,
    pub(crate) index: IdIndex,
}

/// How many incidents are remembered; one damaged file can cause many.
const MAX_INCIDENTS: usize = 1000;

impl Shared {
    pub(crate) fn new(layout: Layout, options: DiskOptions, view: View) -> Self {
        Self {
            files: OpenFiles::new(options.open_files),
            backlog: Backlog::default(),
            ids_wanted: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            layout,
            options,
            view: RwLock::new(view),
            ids: RwLock::default(),
            keyed: RwLock::default(),
            incidents: Mutex::default(),
            condition: Mutex::new(Condition::Healthy),
            watchers: Mutex::new(Some(HashMap::new())),
        }
    }

    // A thread that panics while it holds one of these leaves nothing half done that matters to a
    // reader: what it shows was durable before.

    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view_mut(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ids(&self) -> RwLockReadGuard<'_, Ids> {
        self.ids.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ids_mut(&self) -> RwLockWriteGuard<'_, Ids> {
        self.ids.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keyed(&self) -> KeyedRuns {
        self.keyed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_keyed(&self, keyed: KeyedRuns) {
        *self.keyed.write().unwrap_or_else(PoisonError::into_inner) = keyed;
    }

    pub(crate) fn report(&self, incident: Incident) {
        let mut incidents = lock(&self.incidents);
        if incidents.len() < MAX_INCIDENTS && !incidents.contains(&incident) {
            incidents.push(incident);
        }
    }

    /// Reports a file that only repeats what others hold.
    pub(crate) fn report_rebuilt(&self, file: &Path, detail: impl Into<String>) {
        self.report(Incident::Rebuilt { file: file.to_owned(), detail: detail.into() });
    }

    /// Reports a damaged file of ids and has them gathered anew.
    pub(crate) fn report_damaged_ids(&self, damage: &IndexDamaged) {
        self.report_rebuilt(&damage.run.path, damage.detail.clone());
        self.ids_wanted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn incidents(&self) -> Vec<Incident> {
        lock(&self.incidents).clone()
    }

    pub(crate) fn condition(&self) -> Condition {
        lock(&self.condition).clone()
    }

    /// Sets the condition. Poisoned stays until a restart; closed stays for good.
    pub(crate) fn set_condition(&self, condition: Condition) {
        let mut current = lock(&self.condition);
        let closing = condition == Condition::Closed;
        if closing || matches!(*current, Condition::Healthy | Condition::Full(_)) {
            *current = condition;
        }
    }

    pub(crate) fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        let mut watchers = lock(&self.watchers);
        let Some(watchers) = watchers.as_mut() else {
            return watch::Sender::new(Seq::ZERO).subscribe();
        };
        let last = self.view().topics.get(topic).map_or(Seq::ZERO, |view| view.next.previous());
        let sender = watchers.entry(topic.clone()).or_insert_with(|| watch::Sender::new(last));
        sender.send_if_modified(|seen| std::mem::replace(seen, last.max(*seen)) < last);
        sender.subscribe()
    }

    /// Wakes who watches one of `topics`.
    pub(crate) fn wake<'a>(&self, topics: impl Iterator<Item = (&'a Topic, Seq)>) {
        let mut watchers = lock(&self.watchers);
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

    /// Ends all watches.
    pub(crate) fn end_watches(&self) {
        *lock(&self.watchers) = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
