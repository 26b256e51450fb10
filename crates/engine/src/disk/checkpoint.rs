//! Checkpoints: a full file of the write-ahead log becomes segments, a file of ids and a file of
//! state, all of it durable before the catalog says so, and the catalog before the log file goes.
//!
//! One thread does nothing else. What it was doing when the process died is done again from the
//! log file, to the same places.

pub(crate) mod catalog;
pub(crate) mod pending;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use prombus_proto::{Seq, Topic};
use tokio::sync::oneshot;

use crate::disk::checkpoint::catalog::{Catalog, CatalogTopic};
use crate::disk::ids::merge as merge_ids;
use crate::disk::ids::recent::{IdKinds, RecentIds};
use crate::disk::ids::run::{IdRun, write_run as write_id_run};
use crate::disk::ids::{IdPlace, IdSeed};
use crate::disk::layout::{ignore_missing, sync_folder};
use crate::disk::read::events;
use crate::disk::read::topic_view::{TopicView, WalPiece};
use crate::disk::record::RecordSeed;
use crate::disk::segment::adopted_wal;
use crate::disk::segment::writer::SegmentWriter;
use crate::disk::shared::Shared;
use crate::disk::state::merge as merge_state;
use crate::disk::state::run::{StateRun, write_run as write_state_run};
use crate::disk::storage_faults::means_full;
use crate::disk::wal::coalesced_read::next_span;
use crate::disk::wal::file::WalFile;
use crate::{Condition, Damaged, Incident, ReadBudget, ReadError};

/// A full file of the write-ahead log, ready to be moved into segments.
#[derive(Debug)]
pub(crate) struct SealedWal {
    pub(crate) file: Arc<WalFile>,
    /// What it left of the topics it touched.
    pub(crate) touched: BTreeMap<Topic, TouchedTopic>,
    pub(crate) ids: Arc<RecentIds>,
    /// Behind this there is no frame.
    pub(crate) end: u64,
    /// The frame that follows it.
    pub(crate) next_frame: u64,
    pub(crate) last_version: u64,
    /// Whether something in it is damaged, so that it has to be kept.
    pub(crate) damaged: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TouchedTopic {
    pub(crate) first: Seq,
    pub(crate) next: Seq,
    pub(crate) newest_time_ordered: u128,
    pub(crate) rule: u64,
}

impl TouchedTopic {
    pub(crate) fn of(view: &TopicView) -> Self {
        Self {
            first: view.first,
            next: view.next,
            newest_time_ordered: view.newest_time_ordered,
            rule: view.rule,
        }
    }
}

/// What the thread is asked to do, in order.
pub(crate) enum Task {
    Move(SealedWal),
    /// A trim is durable: segments that lie before the topic's first event can go.
    Reclaim(Topic),
    /// All before this is done, and the last version given out is durable; the thread ends.
    Stop {
        last_version: u64,
        done: oneshot::Sender<()>,
    },
}

/// With more files than this, one sync of the whole filesystem is cheaper than one for each.
const MOST_SYNCS: usize = 64;
/// How much this thread stands back.
const NICENESS: i32 = 10;
/// How long to wait before a full disk is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// How many ids are sorted at a time when they are gathered anew.
const IDS_AT_A_TIME: usize = 1 << 20;

pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    catalog: Catalog,
    tasks: Receiver<Task>,
    /// The engine is being closed and the disk is full: all that is left stays in the log.
    gave_up: bool,
}

impl Checkpointer {
    pub(crate) fn new(shared: Arc<Shared>, catalog: Catalog) -> (mpsc::Sender<Task>, Self) {
        let (sender, tasks) = mpsc::channel();
        (sender, Self { shared, catalog, tasks, gave_up: false })
    }

    /// Runs until it is stopped or every sender is gone.
    pub(crate) fn run(mut self) {
        // Commits come first; when too many log files wait, they wait as well. On Linux this is
        // about this thread alone. Where it is not allowed, nothing is lost.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        loop {
            match self.tasks.recv_timeout(Duration::from_secs(1)) {
                Ok(Task::Move(sealed)) => {
                    self.until_done(|this| this.move_wal(&sealed));
                    self.shared.backlog.remove();
                    self.until_done(Self::merge_what_is_due);
                }
                Ok(Task::Reclaim(topic)) => self.until_done(|this| this.reclaim(&topic)),
                Ok(Task::Stop { last_version, done }) => {
                    self.until_done(|this| this.keep_version(last_version));
                    // Nobody waits for an answer that nobody wants.
                    let _ = done.send(());
                    return;
                }
                // Marks expire whether or not anything is written.
                Err(RecvTimeoutError::Timeout) => self.until_done(Self::merge_what_is_due),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.shared.ids_wanted.swap(false, Ordering::SeqCst) {
                self.until_done(Self::gather_ids_anew);
            }
        }
    }

    /// Tries `step` until it works. A full disk is waited out, unless the engine is being closed;
    /// anything worse poisons the engine. The log files then stay for the restart.
    fn until_done(&mut self, mut step: impl FnMut(&mut Self) -> io::Result<()>) {
        let mut waited = false;
        // A journal that was poisoned and closed left without waiting: closed means the same here.
        let over = |condition| matches!(condition, Condition::Poisoned(_) | Condition::Closed);
        while !self.gave_up && !over(self.shared.condition()) {
            match step(self) {
                Ok(()) => {
                    if waited {
                        self.shared.set_condition(Condition::Healthy);
                    }
                    return;
                }
                Err(error) if means_full(&error) => {
                    waited = true;
                    self.gave_up = self.shared.closing.load(Ordering::SeqCst);
                    self.shared.set_condition(Condition::Full(error.to_string()));
                    self.shared.backlog.wake();
                    std::thread::sleep(RETRY);
                }
                Err(error) => {
                    let reason = format!("a checkpoint failed: {error}");
                    self.shared.set_condition(Condition::Poisoned(reason));
                    self.shared.backlog.wake();
                }
            }
        }
    }

    fn keep_version(&mut self, last_version: u64) -> io::Result<()> {
        if last_version == self.catalog.last_version {
            return Ok(());
        }
        self.replace_catalog(Catalog { last_version, ..self.catalog.clone() })
    }

    fn move_wal(&mut self, sealed: &SealedWal) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let number = sealed.file.number;
        let mut catalog = self.catalog.clone();
        let mut damaged = sealed.damaged;
        let mut dirty = Vec::new();
        for (topic, touched) in &sealed.touched {
            let (pieces, row) = self.topic_in_wal(topic, number, &mut catalog);
            row.first = touched.first;
            row.next = touched.next;
            row.newest_time_ordered = touched.newest_time_ordered;
            row.rule = touched.rule;
            if adopted_wal::is_worth_keeping(sealed, &pieces, &row.segments, &shared.options) {
                let (layout, now) = (&shared.layout, shared.options.clock.now());
                let newest_id = touched.newest_time_ordered;
                let kept = adopted_wal::keep(layout, topic, sealed, &pieces, newest_id, now)?;
                if let Some((segment, mut written)) = kept {
                    row.segments.push(segment);
                    dirty.append(&mut written);
                    continue;
                }
            }
            let seed = RecordSeed::of(topic);
            let (layout, options) = (&shared.layout, &shared.options);
            let mut writer = SegmentWriter::new(layout, options, topic, seed, &mut row.segments);
            let mut rest = &pieces[..];
            while let Some(span) = next_span(&mut rest)? {
                for piece in span.pieces.iter().filter(|piece| piece.last() >= touched.first) {
                    for lost in writer.append(piece, &span.bytes_of(piece))? {
                        damaged = true;
                        shared.report(Incident::DamagedEvents {
                            topic: topic.clone(),
                            first: lost.first,
                            last: lost.last,
                            file: piece.file.path.clone(),
                            detail: "no record that fits".to_owned(),
                        });
                    }
                }
            }
            writer.flush()?;
            dirty.append(&mut writer.dirty);
        }
        self.sync(dirty)?;
        let dropped = drop_trimmed(&shared, &mut catalog, sealed.touched.keys());
        let ids = self.write_ids(&sealed.ids, &mut catalog)?;
        let state = self.write_state(number, &mut catalog)?;
        if damaged {
            self.keep_in_quarantine(&sealed.file.path)?;
        }
        catalog.checkpoint += 1;
        catalog.moved_wal = number;
        catalog.next_frame = sealed.next_frame;
        catalog.last_version = sealed.last_version;
        catalog.store(&shared.layout)?;
        self.catalog = catalog;
        sealed.file.set_moved();
        self.show(sealed, ids, state);
        self.remove_files(&dropped);
        self.remove_wal(sealed)
    }

    /// The pieces of `topic` in log file `number`, and its row in `catalog`.
    fn topic_in_wal<'a>(
        &self,
        topic: &Topic,
        number: u64,
        catalog: &'a mut Catalog,
    ) -> (Vec<WalPiece>, &'a mut CatalogTopic) {
        let view = self.shared.view();
        let view = view.topics.get(topic);
        let pieces = view.map_or_else(Vec::new, |view| {
            view.wal.iter().take_while(|piece| piece.file.number <= number).cloned().collect()
        });
        let row = catalog.topics.entry(topic.clone()).or_insert_with(|| CatalogTopic {
            ordinal: view.expect("a touched topic is in the view").ordinal,
            first: Seq::FIRST,
            next: Seq::FIRST,
            newest_time_ordered: 0,
            rule: 0,
            segments: Vec::new(),
        });
        (pieces, row)
    }

    /// Makes files and folders durable, with few syncs.
    fn sync(&self, mut dirty: Vec<PathBuf>) -> io::Result<()> {
        self.shared.options.faults.before_sync()?;
        dirty.sort_unstable();
        dirty.dedup();
        if dirty.len() > MOST_SYNCS {
            return Ok(rustix::fs::syncfs(File::open(self.shared.layout.root())?)?);
        }
        dirty.iter().try_for_each(|path| File::open(path)?.sync_all())
    }

    fn write_ids(&self, ids: &RecentIds, catalog: &mut Catalog) -> io::Result<Option<IdRun>> {
        let places = ids.sorted();
        if places.is_empty() {
            return Ok(None);
        }
        let number = next_run(catalog);
        let path = self.shared.layout.id_run(number);
        let count = places.len() as u64;
        let run = write_id_run(&path, number, 0, ids.kinds(), count, places.into_iter().map(Ok))?;
        sync_folder(&self.shared.layout.ids())?;
        catalog.id_runs.push(run.info);
        Ok(Some(run))
    }

    fn write_state(&self, wal: u64, catalog: &mut Catalog) -> io::Result<Option<StateRun>> {
        let changes = self.shared.view().overlay.up_to(wal);
        if changes.is_empty() {
            return Ok(None);
        }
        let number = next_run(catalog);
        let path = self.shared.layout.state_run(number);
        let count = changes.len() as u64;
        let run = write_state_run(&path, number, 0, count, changes.into_iter().map(Ok))?;
        sync_folder(&self.shared.layout.state())?;
        catalog.state_runs.extend(run.as_ref().map(|run| run.info));
        Ok(run)
    }

    /// Lets readers look into the new files, and forgets what was kept for them until now.
    fn show(&self, sealed: &SealedWal, ids: Option<IdRun>, state: Option<StateRun>) {
        let number = sealed.file.number;
        if let Some(run) = state {
            let mut keyed = self.shared.keyed();
            keyed.runs.push(Arc::new(run));
            self.shared.set_keyed(keyed);
        }
        let mut view = self.shared.view_mut();
        for topic in sealed.touched.keys() {
            let segments = &self.catalog.topics[topic].segments;
            view.topic_mut(topic).take_over(segments, number);
        }
        view.overlay.forget_up_to(number);
        drop(view);
        // Only now: an id that is in no table any more has to be found by the segments.
        let mut known = self.shared.ids_mut();
        known.index.runs.extend(ids.map(Arc::new));
        known.index.sealed.retain(|table| !Arc::ptr_eq(table, &sealed.ids));
    }

    /// Gives a damaged file a second name, durably, before anything removes the first: a start
    /// after a crash removes log files that the catalog says were moved.
    fn keep_in_quarantine(&self, path: &Path) -> io::Result<()> {
        let quarantine = self.shared.layout.quarantine();
        let kept = quarantine.join(path.file_name().unwrap_or_default());
        match fs::hard_link(path, &kept) {
            Ok(()) => {}
            // Begun before and not finished.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // Not every filesystem has second names.
            Err(_) => {
                fs::copy(path, &kept)?;
                File::open(&kept)?.sync_all()?;
            }
        }
        sync_folder(&quarantine)
    }

    fn remove_wal(&self, sealed: &SealedWal) -> io::Result<()> {
        ignore_missing(fs::remove_file(&sealed.file.path))?;
        sync_folder(&self.shared.layout.wal())
    }

    /// Deletes files that the catalog no longer names. What cannot be deleted only takes room.
    fn remove_files(&self, paths: &[PathBuf]) {
        for path in paths {
            self.shared.files.forget(path);
            let _ = fs::remove_file(path);
        }
    }

    fn reclaim(&mut self, topic: &Topic) -> io::Result<()> {
        let Some(first) = self.shared.view().topics.get(topic).map(|view| view.first) else {
            return Ok(());
        };
        let mut catalog = self.catalog.clone();
        let Some(row) = catalog.topics.get_mut(topic) else {
            return Ok(());
        };
        row.first = row.first.max(first.min(row.next));
        let dropped = drop_trimmed(&self.shared, &mut catalog, std::iter::once(topic));
        if dropped.is_empty() {
            return Ok(());
        }
        catalog.checkpoint += 1;
        catalog.store(&self.shared.layout)?;
        self.catalog = catalog;
        self.remove_files(&dropped);
        Ok(())
    }

    fn merge_what_is_due(&mut self) -> io::Result<()> {
        while self.merge_ids()? || self.merge_state()? {}
        Ok(())
    }

    fn merge_ids(&mut self) -> io::Result<bool> {
        let runs = self.shared.ids().index.runs.clone();
        let Some(due) = merge_ids::due(&runs) else {
            return Ok(false);
        };
        let mut catalog = self.catalog.clone();
        let number = next_run(&mut catalog);
        let firsts: HashMap<_, _> =
            catalog.topics.values().map(|topic| (topic.ordinal, topic.first)).collect();
        let keeps = |place: &IdPlace| firsts.get(&place.topic).is_none_or(|f| place.seq >= *f);
        let merged = match merge_ids::merge(&due, &self.shared.layout.id_run(number), number, keeps)
        {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                due.iter().for_each(|run| self.shared.report_rebuilt(&run.path, error.to_string()));
                self.shared.ids_wanted.store(true, Ordering::SeqCst);
                return Ok(false);
            }
            merged => Arc::new(merged?),
        };
        sync_folder(&self.shared.layout.ids())?;
        let is_old = |number: u64| due.iter().any(|run| run.info.number == number);
        catalog.id_runs.retain(|run| !is_old(run.number));
        catalog.id_runs.push(merged.info);
        self.replace_catalog(catalog)?;
        let mut known = self.shared.ids_mut();
        known.index.runs.retain(|run| !is_old(run.info.number));
        known.index.runs.push(merged);
        drop(known);
        self.remove_files(&due.iter().map(|run| run.path.clone()).collect::<Vec<_>>());
        Ok(true)
    }

    fn merge_state(&mut self) -> io::Result<bool> {
        let mut keyed = self.shared.keyed();
        let now = self.shared.options.clock.now();
        let Some(due) = merge_state::due(&keyed.runs, now) else { return Ok(false) };
        let mut catalog = self.catalog.clone();
        let number = next_run(&mut catalog);
        let path = self.shared.layout.state_run(number);
        let old = keyed.runs[due.clone()].to_vec();
        let older = &keyed.runs[..due.start];
        let merged = match merge_state::merge(&old, older, &path, number, now) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                // What is damaged stays as it is: what of it can be read is still read.
                merge_state::set_damaged_aside(&old);
                self.shared.report(Incident::DamagedState { detail: error.to_string() });
                return Ok(false);
            }
            merged => merged?.map(Arc::new),
        };
        sync_folder(&self.shared.layout.state())?;
        catalog.state_runs.splice(due.clone(), merged.as_ref().map(|run| run.info));
        self.replace_catalog(catalog)?;
        keyed.runs.splice(due, merged);
        self.shared.set_keyed(keyed);
        self.remove_files(&old.iter().map(|run| run.path.clone()).collect::<Vec<_>>());
        Ok(true)
    }

    fn replace_catalog(&mut self, mut catalog: Catalog) -> io::Result<()> {
        catalog.checkpoint += 1;
        catalog.store(&self.shared.layout)?;
        self.catalog = catalog;
        Ok(())
    }

    /// Makes the files of ids anew from the segments: one of them is damaged. Which ids rose is not
    /// known any more where events were trimmed, so that all of them are hashed.
    fn gather_ids_anew(&mut self) -> io::Result<()> {
        let mut catalog = self.catalog.clone();
        let mut gathered = Vec::new();
        let mut kinds = IdKinds::default();
        let mut runs = Vec::new();
        for (topic, row) in self.catalog.topics.clone() {
            let seed = IdSeed::of(catalog.store_seed, &topic);
            let mut from = row.first;
            while row.segments.last().is_some_and(|segment| from <= segment.last) {
                let budget = ReadBudget::of_bytes(1 << 20);
                let events = match events::read(&self.shared, &topic, from, budget) {
                    Ok(page) => page.events,
                    Err(ReadError::Damaged(Damaged::Events { last, .. })) => {
                        from = last.next();
                        continue;
                    }
                    Err(error) => return Err(io::Error::other(error)),
                };
                let Some(last) = events.last() else { break };
                from = last.seq.next();
                for event in &events {
                    let (hash, topic) = (seed.hash(&event.id), row.ordinal);
                    gathered.push(IdPlace { hash, topic, seq: event.seq });
                    kinds.add(event.id.time_ordered());
                }
                if gathered.len() >= IDS_AT_A_TIME {
                    runs.push(self.write_gathered(&mut gathered, &mut kinds, &mut catalog)?);
                }
            }
        }
        runs.push(self.write_gathered(&mut gathered, &mut kinds, &mut catalog)?);
        sync_folder(&self.shared.layout.ids())?;
        catalog.id_runs = runs.iter().map(|run| run.info).collect();
        self.replace_catalog(catalog)?;
        let old = std::mem::replace(&mut self.shared.ids_mut().index.runs, runs);
        for damaged in old.iter().filter(|run| run.is_damaged()) {
            ignore_missing(self.keep_in_quarantine(&damaged.path))?;
        }
        self.remove_files(&old.iter().map(|run| run.path.clone()).collect::<Vec<_>>());
        Ok(())
    }

    fn write_gathered(
        &self,
        gathered: &mut Vec<IdPlace>,
        kinds: &mut IdKinds,
        catalog: &mut Catalog,
    ) -> io::Result<Arc<IdRun>> {
        gathered.sort_unstable();
        let number = next_run(catalog);
        let path = self.shared.layout.id_run(number);
        let count = gathered.len() as u64;
        let places = gathered.drain(..).map(Ok);
        Ok(Arc::new(write_id_run(&path, number, 0, std::mem::take(kinds), count, places)?))
    }
}

fn next_run(catalog: &mut Catalog) -> u64 {
    catalog.next_run += 1;
    catalog.next_run - 1
}

/// Takes segments that lie before their topic's first event out of the catalog and answers their
/// files.
fn drop_trimmed<'a>(
    shared: &Shared,
    catalog: &mut Catalog,
    topics: impl Iterator<Item = &'a Topic>,
) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for topic in topics {
        let Some(row) = catalog.topics.get_mut(topic) else {
            continue;
        };
        let first = row.first;
        row.segments.retain(|segment| {
            let keeps = segment.last >= first;
            if !keeps {
                files.push(shared.layout.segment(topic, segment.first));
                files.push(shared.layout.sparse_index(topic, segment.first));
            }
            keeps
        });
    }
    files
}
