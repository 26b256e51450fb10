//! Long work on sorted runs beside the checkpoints: a merge, or the rebuild of the id runs.
//!
//! It only writes new files. Their numbers are taken from the catalog before it starts, so that no
//! checkpoint uses them as well. The checkpoint thread then replaces the old runs in the catalog; it
//! remains the only one that changes it. One task runs at a time.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::backoff::Backoff;
use super::merging::{IdMerge, StateMerge};
use super::rebuild_ids::IdRebuild;
use super::sweep::Sweep;
use super::{Checkpointer, NICENESS};
use crate::disk::ids::run::IdRun;
use crate::disk::shared::Shared;
use crate::disk::state::run::StateRun;
use crate::disk::storage::faults::is_temporary;

/// Each kind is retried on its own, so that none waits for one that keeps failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskKind {
    RebuildIds,
    MergeIds,
    MergeState,
}

pub(super) enum RunTask {
    RebuildIds(IdRebuild),
    MergeIds(IdMerge),
    MergeState(StateMerge),
}

impl RunTask {
    const fn kind(&self) -> TaskKind {
        match self {
            Self::RebuildIds(_) => TaskKind::RebuildIds,
            Self::MergeIds(_) => TaskKind::MergeIds,
            Self::MergeState(_) => TaskKind::MergeState,
        }
    }

    /// Writes the new runs durably. Returns `None`, and leaves no file, if it was abandoned or found
    /// damage.
    fn run(self, shared: &Shared, abandon: &Abandon) -> TaskResult {
        match self {
            Self::RebuildIds(rebuild) => rebuild.run(shared, abandon),
            Self::MergeIds(merge) => merge.run(shared, abandon),
            Self::MergeState(merge) => merge.run(shared, abandon),
        }
    }
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RebuildIds => "rebuild the index of event ids",
            Self::MergeIds => "merge files of event ids",
            Self::MergeState => "merge files of keyed state",
        })
    }
}

/// New runs, and those that they replace.
pub(super) enum Replacement {
    Ids {
        old: Vec<Arc<IdRun>>,
        new: Vec<Arc<IdRun>>,
        is_rebuild: bool,
        /// Ids of deleted topics that are not in the new runs.
        dead_ids: u64,
    },
    State {
        old: Vec<Arc<StateRun>>,
        new: Option<Arc<StateRun>>,
    },
}

impl Replacement {
    fn new_files(&self) -> Vec<PathBuf> {
        match self {
            Self::Ids { new, .. } => new.iter().map(|run| run.path.clone()).collect(),
            Self::State { new, .. } => new.iter().map(|run| run.path.clone()).collect(),
        }
    }
}

/// Tells a task to stop, because the engine is being closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Abandon(Arc<AtomicBool>);

impl Abandon {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails if the task has to stop.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.is_set() { Err(io::Error::other("abandoned")) } else { Ok(()) }
    }
}

/// Where a task runs.
enum RunningTask {
    /// Without threads, it runs when the checkpointer asks for its result.
    Deferred(RunTask),
    Thread(TaskThread),
}

type TaskResult = io::Result<Option<Replacement>>;

struct TaskThread {
    abandon: Abandon,
    /// `None` once it was joined.
    thread: Option<JoinHandle<TaskResult>>,
}

impl TaskThread {
    fn spawn(shared: &Arc<Shared>, task: RunTask) -> io::Result<Self> {
        let abandon = Abandon::default();
        let (shared, abandoned) = (Arc::clone(shared), abandon.clone());
        let run = move || {
            let _ = rustix::process::setpriority_process(None, NICENESS);
            task.run(&shared, &abandoned)
        };
        let thread = thread::Builder::new().name("prombus-merge".to_owned()).spawn(run)?;
        Ok(Self { abandon, thread: Some(thread) })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(mut self) -> TaskResult {
        let result = self.thread.take().map(JoinHandle::join);
        // The panic hook has already reported a panic.
        result.and_then(Result::ok).unwrap_or_else(|| Err(io::Error::other("a merge panicked")))
    }
}

impl Drop for TaskThread {
    /// Waits for the thread: the next owner of the store may use the same file name.
    fn drop(&mut self) {
        self.abandon.set();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The running task, and when the next ones may start.
pub(super) struct RunTasks {
    /// Whether tasks run on a thread of their own.
    pub(super) use_thread: bool,
    running: Option<(TaskKind, RunningTask)>,
    /// The kind that failed last: any other comes first.
    failed_last: Option<TaskKind>,
    rebuild_ids: Backoff,
    merge_ids: Backoff,
    merge_state: Backoff,
}

impl RunTasks {
    pub(super) const fn without_thread() -> Self {
        Self {
            use_thread: false,
            running: None,
            failed_last: None,
            rebuild_ids: Backoff::NONE,
            merge_ids: Backoff::NONE,
            merge_state: Backoff::NONE,
        }
    }

    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Stops the running task, if any. Its files are removed.
    pub(super) fn abandon(&mut self) {
        self.running = None;
    }

    /// Returns the result of a finished task.
    fn take_finished(&mut self, shared: &Shared) -> Option<(TaskKind, TaskResult)> {
        let is_finished = |(_, task): &mut (TaskKind, RunningTask)| match task {
            RunningTask::Deferred(_) => true,
            RunningTask::Thread(thread) => thread.is_finished(),
        };
        let (kind, task) = self.running.take_if(is_finished)?;
        let result = match task {
            RunningTask::Deferred(task) => task.run(shared, &Abandon::default()),
            RunningTask::Thread(thread) => thread.join(),
        };
        Some((kind, result))
    }

    fn backoff(&mut self, kind: TaskKind) -> &mut Backoff {
        match kind {
            TaskKind::RebuildIds => &mut self.rebuild_ids,
            TaskKind::MergeIds => &mut self.merge_ids,
            TaskKind::MergeState => &mut self.merge_state,
        }
    }

    fn succeeded(&mut self, kind: TaskKind) {
        *self.backoff(kind) = Backoff::NONE;
        self.failed_last = None;
    }

    fn failed(&mut self, kind: TaskKind) {
        // Without threads a seed determines everything, and the clock is not asked.
        if self.use_thread {
            self.backoff(kind).wait();
        }
        self.failed_last = Some(kind);
    }
}

impl Checkpointer {
    /// Starts the next task, if one is due and none is running.
    pub(super) fn start_run_task(&mut self) {
        // The sweep would take the files of a task for left-over ones.
        let is_swept = !matches!(self.sweep, Sweep::Everything);
        if self.run_tasks.is_running() || !is_swept || self.stop.is_some() {
            return;
        }
        let Some(task) = self.due_run_task() else { return };
        let kind = task.kind();
        if !self.run_tasks.use_thread {
            self.run_tasks.running = Some((kind, RunningTask::Deferred(task)));
            return;
        }
        match TaskThread::spawn(&self.shared, task) {
            Ok(thread) => self.run_tasks.running = Some((kind, RunningTask::Thread(thread))),
            Err(_) => self.run_tasks.failed(kind),
        }
    }

    fn due_run_task(&mut self) -> Option<RunTask> {
        let mut kinds = [TaskKind::RebuildIds, TaskKind::MergeIds, TaskKind::MergeState];
        kinds.sort_by_key(|kind| self.run_tasks.failed_last == Some(*kind));
        kinds.into_iter().find_map(|kind| self.due_task_of(kind))
    }

    fn due_task_of(&mut self, kind: TaskKind) -> Option<RunTask> {
        if self.run_tasks.backoff(kind).is_waiting() {
            return None;
        }
        let (shared, catalog) = (&self.shared, &mut self.catalog);
        match kind {
            TaskKind::RebuildIds => {
                let is_requested = shared.id_rebuild_requested.load(Ordering::SeqCst);
                is_requested.then(|| RunTask::RebuildIds(IdRebuild::new(shared, catalog)))
            }
            TaskKind::MergeIds => IdMerge::due(shared, catalog).map(RunTask::MergeIds),
            TaskKind::MergeState => StateMerge::due(shared, catalog).map(RunTask::MergeState),
        }
    }

    /// Puts the new runs of a finished task into the catalog. If the task failed, the runs stay as they
    /// are: look-ups take longer, but nothing else waits.
    pub(super) fn finish_run_task(&mut self) -> io::Result<()> {
        let Some((kind, result)) = self.run_tasks.take_finished(&self.shared) else {
            return Ok(());
        };
        let replaced = match result {
            Ok(Some(replacement)) => self.replace_runs(replacement),
            Ok(None) => {
                self.run_tasks.failed(kind);
                return Ok(());
            }
            // No catalog names what it wrote, so nothing is lost.
            Err(error) => {
                tracing::warn!("cannot {kind}: {error}; trying again later");
                self.run_tasks.failed(kind);
                return Ok(());
            }
        };
        match replaced {
            Ok(()) => self.run_tasks.succeeded(kind),
            Err(error) if is_temporary(&error) => self.run_tasks.failed(kind),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn replace_runs(&mut self, replacement: Replacement) -> io::Result<()> {
        let files = replacement.new_files();
        let replaced = match replacement {
            Replacement::Ids { old, new, is_rebuild, dead_ids } => {
                self.replace_id_runs(&old, new, is_rebuild, dead_ids)
            }
            Replacement::State { old, new } => self.replace_state_runs(&old, new),
        };
        // The catalog may be on disk already, unless the error is temporary.
        if replaced.as_ref().is_ok_and(|is_done| !is_done)
            || replaced.as_ref().is_err_and(is_temporary)
        {
            self.remove_files(&files);
        }
        replaced.map(drop)
    }

    /// Returns `false` if the old runs are no longer all there.
    fn replace_id_runs(
        &mut self,
        old: &[Arc<IdRun>],
        new: Vec<Arc<IdRun>>,
        is_rebuild: bool,
        dead_ids: u64,
    ) -> io::Result<bool> {
        let mut edit = self.catalog.edit();
        edit.dead_ids = edit.dead_ids.saturating_sub(dead_ids);
        let is_old = |number: u64| old.iter().any(|run| run.info.number == number);
        edit.id_runs.retain(|run| !is_old(run.number));
        if edit.id_runs.len() + old.len() != self.catalog.id_runs.len() {
            return Ok(false);
        }
        edit.id_runs.extend(new.iter().map(|run| run.info));
        self.change_catalog(edit)?;
        let mut tables = self.shared.ids_mut();
        tables.index.runs.retain(|run| !is_old(run.info.number));
        tables.index.runs.extend(new);
        if is_rebuild {
            // Look-ups requested it again and again until now.
            self.shared.id_rebuild_requested.store(false, Ordering::SeqCst);
        }
        drop(tables);
        self.remove_files(&old.iter().map(|run| run.path.clone()).collect::<Vec<_>>());
        Ok(true)
    }

    /// Returns `false` if the old runs are no longer all there.
    fn replace_state_runs(
        &mut self,
        old: &[Arc<StateRun>],
        new: Option<Arc<StateRun>>,
    ) -> io::Result<bool> {
        let mut state = self.shared.state_runs();
        let is_first = |run: &Arc<StateRun>| Arc::ptr_eq(run, &old[0]);
        let Some(start) = state.runs.iter().position(is_first) else { return Ok(false) };
        let range = start..start + old.len();
        let found = state.runs.get(range.clone()).unwrap_or_default();
        if !found.iter().map(Arc::as_ptr).eq(old.iter().map(Arc::as_ptr)) {
            return Ok(false);
        }
        let mut edit = self.catalog.edit();
        edit.state_runs.splice(range.clone(), new.as_ref().map(|run| run.info));
        self.change_catalog(edit)?;
        state.runs.splice(range, new);
        self.shared.set_state_runs(state);
        self.remove_files(&old.iter().map(|run| run.path.clone()).collect::<Vec<_>>());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::{Seq, Timestamp, Topic};

    use super::*;
    use crate::disk::checkpoint::catalog::files::StoredCatalog;
    use crate::disk::checkpoint::catalog::{Catalog, CatalogTopic};
    use crate::disk::ids::ahead::NewestIds;
    use crate::disk::ids::recent::IdCoverage;
    use crate::disk::ids::run::write_run;
    use crate::disk::ids::{IdEntry, IdHash, TopicOrdinal};
    use crate::disk::read::view::View;
    use crate::disk::sorted_runs::RUNS_PER_LEVEL;
    use crate::disk::storage::layout::Layout;
    use crate::{Condition, DiskOptions};

    /// A store with as many id runs as are merged.
    fn store(folder: &std::path::Path) -> (Arc<Shared>, Checkpointer) {
        let layout = Layout::new(folder.to_owned());
        layout.create_folders().unwrap();
        let shared = Shared::new(layout, DiskOptions::at(folder), View::new(1));
        let mut catalog = Catalog::new(1);
        let row = CatalogTopic {
            ordinal: TopicOrdinal(0),
            first: Seq::FIRST,
            next: Seq(1 << 20),
            newest_ids: NewestIds::default(),
            rule: 0,
            trimmed_arrival: Timestamp(0),
            segments: Vec::new(),
        };
        catalog.topics.insert(Topic::new("t").unwrap(), row);
        for _ in 0..RUNS_PER_LEVEL {
            let number = catalog.take_run_number();
            let path = shared.layout.id_run(number);
            let entries = (0..1000u64).map(|i| {
                let hash = IdHash(i << 50 | number);
                Ok(IdEntry { hash, topic: TopicOrdinal(0), seq: Seq(i * 10 + number) })
            });
            let coverage = IdCoverage { v7_millis: None, others: true };
            let fs = shared.layout.fs();
            let run = write_run(fs, &path, number, 0, coverage, 1000, entries).unwrap();
            catalog.id_runs.push(run.info);
            shared.ids_mut().index.runs.push(Arc::new(run));
        }
        let shared = Arc::new(shared);
        let catalog = StoredCatalog::create(&shared.layout, catalog).unwrap();
        let (_, checkpointer) = Checkpointer::new(Arc::clone(&shared), catalog).unwrap();
        (shared, checkpointer)
    }

    fn id_runs(shared: &Shared) -> Vec<u64> {
        shared.layout.numbered(&shared.layout.ids(), "ids").unwrap()
    }

    #[test]
    fn an_abandoned_merge_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, mut checkpointer) = store(folder.path());
        let task = checkpointer.due_run_task().expect("enough runs");
        let abandon = Abandon::default();
        abandon.set();
        assert!(task.run(&shared, &abandon).unwrap().is_none());
        assert_eq!(id_runs(&shared), (1..=8).collect::<Vec<_>>());
        assert!(!shared.id_rebuild_requested.load(Ordering::SeqCst));
        // Its number is not used again while the process runs.
        let task = checkpointer.due_run_task().expect("still due");
        assert!(task.run(&shared, &Abandon::default()).unwrap().is_some());
        assert_eq!(id_runs(&shared).last(), Some(&10));
    }

    #[test]
    fn commits_do_not_wait_for_a_checkpoint_thread_that_panicked() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, checkpointer) = store(folder.path());
        shared.pending_checkpoints.add(0);
        let panicking = thread::spawn(move || {
            let _checkpointer = checkpointer;
            panic!("as if a checkpoint had found a bug");
        });
        assert!(panicking.join().is_err());
        let condition = shared.condition();
        assert!(matches!(condition, Condition::Poisoned(_)), "{condition:?}");
    }

    #[test]
    fn a_rebuild_that_keeps_failing_holds_up_no_merge() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, mut checkpointer) = store(folder.path());
        checkpointer.sweep = Sweep::Nothing;
        shared.id_rebuild_requested.store(true, Ordering::SeqCst);
        for use_thread in [false, true] {
            checkpointer.run_tasks = RunTasks::without_thread();
            checkpointer.run_tasks.use_thread = use_thread;
            let mut next = || checkpointer.due_run_task().map(|task| task.kind());
            assert_eq!(next(), Some(TaskKind::RebuildIds));
            (0..9).for_each(|_| checkpointer.run_tasks.failed(TaskKind::RebuildIds));
            let mut next = || checkpointer.due_run_task().map(|task| task.kind());
            assert_eq!(next(), Some(TaskKind::MergeIds));
            checkpointer.run_tasks.succeeded(TaskKind::MergeIds);
            let next = checkpointer.due_run_task().map(|task| task.kind());
            // A thread waits longer and longer before it reads everything again.
            let is_waiting = next == Some(TaskKind::MergeIds);
            assert_eq!(is_waiting, use_thread, "{next:?}");
        }
    }

    #[test]
    fn a_merge_on_its_thread_keeps_the_runs_that_were_added_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, mut checkpointer) = store(folder.path());
        checkpointer.run_tasks.use_thread = true;
        checkpointer.sweep = Sweep::Nothing;
        checkpointer.start_run_task();
        assert!(checkpointer.run_tasks.is_running());
        // What a checkpoint does.
        let number = checkpointer.catalog.take_run_number();
        let (path, coverage) = (shared.layout.id_run(number), IdCoverage::default());
        let entries = std::iter::empty();
        let run = write_run(shared.layout.fs(), &path, number, 0, coverage, 0, entries).unwrap();
        checkpointer.catalog.id_runs.push(run.info);
        shared.ids_mut().index.runs.push(Arc::new(run));
        while checkpointer.run_tasks.is_running() {
            thread::yield_now();
            checkpointer.finish_run_task().unwrap();
        }
        let mut named: Vec<_> = checkpointer.catalog.id_runs.iter().map(|run| run.number).collect();
        named.sort_unstable();
        assert_eq!(named, [9, 10]);
        assert_eq!(id_runs(&shared), [9, 10]);
        let runs = shared.ids().index.runs.clone();
        assert_eq!(runs.iter().map(|run| run.iter().count()).sum::<usize>(), 8000);
    }
}
