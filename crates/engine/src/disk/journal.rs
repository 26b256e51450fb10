//! The journal: the one thread that gives positions and writes the log.
//!
//! It gathers all that waits into one frame, writes it, syncs once if anybody asked for that, shows
//! it to the readers and answers everybody. While a sync runs, the next group gathers by itself.

mod retention;
pub(crate) mod staging;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use prombus_proto::{Seq, Topic};
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::oneshot;

use crate::disk::checkpoint::{SealedWal, Task, TouchedTopic};
use crate::disk::journal::staging::{RecordBuffers, StagedFrame, Staging};
use crate::disk::record::EndSum;
use crate::disk::shared::Shared;
use crate::disk::storage_faults::means_full;
use crate::disk::wal::file::WalFile;
use crate::{
    Batch, Bounds, CommitError, Committed, Condition, Durability, Position, Retention, Unavailable,
    Version, WriteStats,
};

/// What the journal is asked to do, in order.
pub(crate) enum Request {
    /// A batch whose sizes are right, how many bytes it has, and the sums of its events' ends.
    Commit {
        batch: Batch,
        bytes: usize,
        end_sums: Vec<EndSum>,
        reply: oneshot::Sender<CommitAnswer>,
    },
    Trim {
        topic: Topic,
        below: Seq,
        reply: oneshot::Sender<Result<Bounds, CommitError>>,
    },
    Retain {
        topic: Topic,
        rule: Retention,
        reply: oneshot::Sender<Result<Bounds, CommitError>>,
    },
    Close {
        reply: oneshot::Sender<Result<(), CommitError>>,
    },
}

/// The answer to a commit, and the batch itself: freeing its events costs the journal a quarter of
/// its time, and the committer nothing it would not have spent anyway.
pub(crate) type CommitAnswer = (Result<Committed, CommitError>, Batch);

/// How much is gathered into one frame, at most.
const GROUP_BYTES: usize = 4 << 20;
/// The same where nobody asks for a sync, which is what makes large groups worth while. A smaller
/// one is written while it is in the processor's cache, and while the committers get the next ready:
/// all of them in one group would wait for the journal, and then the journal for them.
const UNSYNCED_GROUP_BYTES: usize = 256 << 10;
const GROUP_REQUESTS: usize = 8192;

/// How much room is made ready ahead of small frames that are synced.
const CLEARED_AHEAD: u64 = 128 << 10;

/// How many keys one log file may change. They are in memory until a checkpoint has moved them, and
/// small ones, such as marks, take several times what they take in the file.
const KEYS_PER_FILE: usize = 50_000;

/// Where the journal goes on after what was there when the engine was opened.
pub(crate) struct JournalStart {
    pub(crate) next_wal: u64,
    pub(crate) next_frame: u64,
    pub(crate) last_version: u64,
}

pub(crate) struct Journal {
    shared: Arc<Shared>,
    requests: Receiver<Request>,
    checkpoints: mpsc::Sender<Task>,
    next_wal: u64,
    next_frame: u64,
    last_version: u64,
    wal: Option<OpenWal>,
    /// Full log files that were not synced when they became full.
    unsynced: Vec<Weak<WalFile>>,
    buffers: RecordBuffers,
    gathering: GatherPace,
}

/// The log file that is being written.
struct OpenWal {
    file: Arc<WalFile>,
    end: u64,
    last_frame_bytes: u64,
    /// To where the room behind `end` was written with zeros.
    cleared_to: u64,
    unsynced: bool,
    touched: BTreeSet<Topic>,
}

type CloseReply = oneshot::Sender<Result<(), CommitError>>;

/// Requests that are served together.
struct Group {
    waiting: Vec<(Request, Outcome)>,
    staging: Staging,
    bytes: usize,
    wants_sync: bool,
    /// Why nothing is served now.
    refusal: Option<CommitError>,
}

impl Group {
    fn is_full(&self) -> bool {
        let most_bytes = if self.wants_sync { GROUP_BYTES } else { UNSYNCED_GROUP_BYTES };
        self.waiting.len() >= GROUP_REQUESTS || self.bytes >= most_bytes
    }
}

/// What a request will be answered if the frame is stored.
enum Outcome {
    Committed { positions: Vec<Position>, version: Version },
    Trimmed(Topic),
    Refused(CommitError),
}

impl Outcome {
    fn events(&self) -> usize {
        match self {
            Outcome::Committed { positions, .. } => positions.len(),
            Outcome::Trimmed(_) | Outcome::Refused(_) => 0,
        }
    }
}

/// How safe a group is, and how long the sync for it took.
#[derive(Clone, Copy)]
struct Kept {
    durability: Durability,
    sync_time: Option<Duration>,
}

impl Journal {
    pub(crate) fn new(
        shared: Arc<Shared>,
        requests: Receiver<Request>,
        checkpoints: mpsc::Sender<Task>,
        start: &JournalStart,
    ) -> Self {
        Self {
            shared,
            requests,
            checkpoints,
            next_wal: start.next_wal,
            next_frame: start.next_frame,
            last_version: start.last_version,
            wal: None,
            unsynced: Vec::new(),
            buffers: RecordBuffers::default(),
            gathering: GatherPace::default(),
        }
    }

    /// Runs until it is closed or every sender is gone.
    pub(crate) fn run(mut self) {
        let mut closing = Vec::new();
        while closing.is_empty() {
            let Some(first) = self.next_request() else { break };
            let group = self.gather(first, &mut closing);
            self.serve(group);
        }
        self.requests.close();
        let mut rest = self.new_group();
        while let Ok(request) = self.requests.try_recv() {
            self.admit(request, &mut rest, &mut closing);
        }
        self.serve(rest);
        let result = self.close();
        self.shared.set_condition(Condition::Closed);
        self.shared.end_watches();
        for reply in closing {
            answer(reply, result.clone());
        }
    }

    /// Waits for a request. Where a group was just answered it looks out for them awake for a
    /// moment: falling asleep, and being woken by the first of them, costs them all more.
    fn next_request(&mut self) -> Option<Request> {
        let patience = self.gathering.patience();
        while self.gathering.looks_out(&patience) {
            match self.requests.try_recv() {
                Ok(request) => return Some(request),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => thread::yield_now(),
            }
        }
        self.requests.blocking_recv()
    }

    /// All that waits now; and those who were answered together last time, if they are about to
    /// come back. Each is staged as it comes.
    fn gather(&mut self, first: Request, closing: &mut Vec<CloseReply>) -> Group {
        let mut group = self.new_group();
        self.admit(first, &mut group, closing);
        let mut patience = self.gathering.patience();
        let mut waited = false;
        while closing.is_empty() && !group.is_full() {
            match self.requests.try_recv() {
                Ok(request) => {
                    self.admit(request, &mut group, closing);
                    if mem::take(&mut waited) {
                        self.gathering.arrived(&mut patience);
                    }
                }
                Err(_) if self.gathering.expects_more(&group, &patience) => {
                    waited = true;
                    thread::yield_now();
                }
                Err(_) => break,
            }
        }
        group
    }

    fn new_group(&mut self) -> Group {
        Group {
            waiting: Vec::new(),
            staging: Staging::new(mem::take(&mut self.buffers)),
            bytes: 0,
            wants_sync: false,
            refusal: self.check_condition().err(),
        }
    }

    /// Takes a request into the group.
    fn admit(&mut self, request: Request, group: &mut Group, closing: &mut Vec<CloseReply>) {
        if let Request::Close { reply } = request {
            closing.push(reply);
            return;
        }
        if let Some(error) = &group.refusal {
            request.refuse(error.clone());
            return;
        }
        let outcome = self.stage(&request, &mut group.staging);
        group.bytes += request.bytes();
        group.wants_sync |= request.wants_sync();
        group.waiting.push((request, outcome));
    }

    fn serve(&mut self, group: Group) {
        let Group { waiting, staging, wants_sync, .. } = group;
        if waiting.is_empty() {
            return;
        }
        match self.store(staging, wants_sync) {
            Ok(kept) => {
                self.gathering.answered(waiting.len(), wants_sync);
                let events = waiting.iter().map(|(_, outcome)| outcome.events()).sum();
                let mut write = Some(WriteStats { events, sync_time: kept.sync_time });
                for (request, outcome) in waiting {
                    request.answer(&self.shared, outcome, kept.durability, &mut write);
                }
                if wants_sync {
                    self.clear_ahead();
                }
            }
            Err(error) => {
                waiting.into_iter().for_each(|(request, _)| request.refuse(error.clone()));
            }
        }
    }

    fn check_condition(&self) -> Result<(), CommitError> {
        match self.shared.condition() {
            Condition::Poisoned(reason) => Err(Unavailable::Poisoned(reason).into()),
            Condition::Closed => Err(Unavailable::Closed.into()),
            Condition::Healthy | Condition::Full(_) => Ok(()),
        }
    }

    fn stage(&mut self, request: &Request, staging: &mut Staging) -> Outcome {
        let shared = &self.shared;
        match request {
            Request::Commit { batch, end_sums, .. } => {
                let version = Version(self.last_version + 1);
                match staging.stage(shared, &shared.ids(), (batch, end_sums), version) {
                    Ok(positions) => {
                        self.last_version = version.0;
                        Outcome::Committed { positions, version }
                    }
                    Err(error) => Outcome::Refused(error),
                }
            }
            Request::Trim { topic, below, .. } => {
                staging.stage_trim(shared, topic, *below);
                Outcome::Trimmed(topic.clone())
            }
            Request::Retain { topic, rule, .. } => {
                match staging.stage_retain(shared, topic, rule) {
                    Ok(()) => Outcome::Trimmed(topic.clone()),
                    Err(error) => Outcome::Refused(error),
                }
            }
            Request::Close { .. } => unreachable!("closing is taken out before"),
        }
    }

    /// Writes, syncs and shows what was staged. After an error nothing of it is stored, or the
    /// engine is poisoned.
    fn store(&mut self, staging: Staging, sync: bool) -> Result<Kept, CommitError> {
        if staging.is_empty() {
            return self.sync_if(sync);
        }
        let frame = staging.into_frame(self.next_frame, Version(self.last_version));
        let offset = self.write(&frame)?;
        let kept = self.sync_if(sync)?;
        self.next_frame += 1;
        self.show(frame, offset);
        Ok(kept)
    }

    /// Appends a frame to the log and answers where it begins.
    fn write(&mut self, frame: &StagedFrame) -> Result<u64, CommitError> {
        let bytes = frame.head.frame_bytes();
        let limit = self.shared.options.wal_file_bytes;
        if self.wal.as_ref().is_some_and(|wal| wal.end + bytes > limit || self.has_much_state(wal))
        {
            self.seal()?;
        }
        if self.wal.is_none() {
            let room = limit.max(WalFile::first_frame_offset() + bytes);
            self.wal = Some(self.begin_wal(room)?);
        }
        let wal = self.wal.as_mut().expect("there is one now");
        let offset = wal.end;
        if let Err(error) = wal.file.write_at(offset, &frame.parts()) {
            // What was written of it must not look like a torn batch later.
            let cut = wal.file.cut(offset);
            wal.cleared_to = offset;
            return Err(match cut {
                Ok(()) => self.refusal(&error),
                Err(_) => self.poison(&error),
            });
        }
        wal.end += bytes;
        wal.last_frame_bytes = bytes;
        wal.unsynced = true;
        if matches!(self.shared.condition(), Condition::Full(_)) {
            self.shared.set_condition(Condition::Healthy);
        }
        Ok(offset)
    }

    fn has_much_state(&self, wal: &OpenWal) -> bool {
        self.shared.view().overlay.in_newest_file(wal.file.number) >= KEYS_PER_FILE
    }

    /// Writes zeros to where the next frames will be, while those who were answered come back.
    ///
    /// The first write into room that was only taken makes the filesystem note in its own journal
    /// that the room is now in use, and a sync waits for that, too: 20 KiB took 250 µs instead of
    /// 135. So that is done for many small frames at once. Large ones have too little of it.
    fn clear_ahead(&mut self) {
        let limit = self.shared.options.wal_file_bytes;
        let Some(wal) = self.wal.as_mut() else { return };
        let room_for_next = wal.end + 2 * wal.last_frame_bytes <= wal.cleared_to;
        if wal.last_frame_bytes > CLEARED_AHEAD / 2 || room_for_next {
            return;
        }
        let from = wal.end.max(wal.cleared_to);
        let to = (from + CLEARED_AHEAD).min(limit);
        if from < to {
            wal.file.clear(from, to);
            wal.cleared_to = to;
        }
    }

    fn begin_wal(&mut self, room: u64) -> Result<OpenWal, CommitError> {
        let shared = &self.shared;
        shared.backlog.wait_below(shared.options.wal_files_waiting, || {
            match shared.condition() {
                Condition::Full(reason) => Some(CommitError::Full(reason)),
                Condition::Poisoned(reason) => Some(Unavailable::Poisoned(reason).into()),
                Condition::Healthy | Condition::Closed => None,
            }
        })?;
        let faults = Arc::clone(&shared.options.faults);
        match WalFile::create(&shared.layout, self.next_wal, room, faults) {
            Ok(file) => {
                self.next_wal += 1;
                Ok(OpenWal {
                    file: Arc::new(file),
                    end: WalFile::first_frame_offset(),
                    last_frame_bytes: 0,
                    cleared_to: 0,
                    unsynced: false,
                    touched: BTreeSet::new(),
                })
            }
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// Closes the log file and hands it over to be moved.
    fn seal(&mut self) -> Result<(), CommitError> {
        let Some(wal) = self.wal.take() else { return Ok(()) };
        if wal.unsynced {
            self.unsynced.retain(|earlier| earlier.strong_count() > 0);
            self.unsynced.push(Arc::downgrade(&wal.file));
        }
        let ids = {
            let mut ids = self.shared.ids_mut();
            let table = Arc::new(mem::take(&mut ids.newest));
            ids.index.sealed.push(Arc::clone(&table));
            table
        };
        let view = self.shared.view();
        let touched = wal.touched.into_iter().map(|topic| {
            let touched = TouchedTopic::of(&view.topics[&topic]);
            (topic, touched)
        });
        let sealed = SealedWal {
            file: wal.file,
            touched: touched.collect(),
            ids,
            end: wal.end,
            next_frame: self.next_frame,
            last_version: self.last_version,
            damaged: false,
        };
        self.shared.backlog.add();
        self.checkpoints
            .send(Task::Move(sealed))
            .map_err(|_| Unavailable::Poisoned("the checkpoint thread is gone".to_owned()).into())
    }

    fn sync_if(&mut self, wanted: bool) -> Result<Kept, CommitError> {
        if !wanted {
            return Ok(Kept { durability: Durability::Buffered, sync_time: None });
        }
        let mut sync_time = None;
        let begun = now();
        // A later file must not survive what an earlier one loses.
        for earlier in mem::take(&mut self.unsynced) {
            if let Some(earlier) = earlier.upgrade().filter(|earlier| !earlier.is_moved()) {
                earlier.sync().map_err(|error| self.poison(&error))?;
                sync_time = Some(begun.elapsed());
            }
        }
        if let Some(wal) = self.wal.as_mut().filter(|wal| wal.unsynced) {
            let started = now();
            if let Err(error) = wal.file.sync() {
                return Err(self.poison(&error));
            }
            wal.unsynced = false;
            self.gathering.synced_in(started.elapsed());
            sync_time = Some(begun.elapsed());
        }
        Ok(Kept { durability: Durability::Fsync, sync_time })
    }

    fn show(&mut self, mut frame: StagedFrame, offset: u64) {
        self.buffers = frame.take_buffers();
        let wal = self.wal.as_mut().expect("a frame was just written");
        // Known before it is seen: who has seen an event finds it by its id.
        frame.add_ids(&mut self.shared.ids_mut().newest);
        let StagedFrame { head, mut pieces, state, newest_time_ordered, new_topics, .. } = frame;
        pieces.iter_mut().for_each(|piece| piece.offset += offset);
        let trimmed = head.trims.iter().map(|trim| &trim.topic);
        let appended = head.runs.iter().map(|run| &run.topic);
        for topic in trimmed.clone().chain(appended) {
            if !wal.touched.contains(topic) {
                wal.touched.insert(topic.clone());
            }
        }
        {
            let mut view = self.shared.view_mut();
            for (topic, ordinal) in &new_topics {
                view.add_topic(topic, *ordinal);
            }
            view.apply(&wal.file, &head, &pieces, &newest_time_ordered, state);
        }
        self.shared.wake(
            head.runs
                .iter()
                .map(|run| (&run.topic, run.first.plus(u64::from(run.count)).previous())),
        );
        for topic in trimmed {
            // Nobody there any more: the restart reclaims it.
            let _ = self.checkpoints.send(Task::Reclaim(topic.clone()));
        }
    }

    /// A full disk refuses; anything worse poisons.
    fn refusal(&self, error: &io::Error) -> CommitError {
        if means_full(error) {
            self.shared.set_condition(Condition::Full(error.to_string()));
            return CommitError::Full(error.to_string());
        }
        self.poison(error)
    }

    fn poison(&self, error: &io::Error) -> CommitError {
        let reason = error.to_string();
        self.shared.set_condition(Condition::Poisoned(reason.clone()));
        Unavailable::Poisoned(reason).into()
    }

    /// Moves everything into segments, so that the next start has nothing to do.
    fn close(&mut self) -> Result<(), CommitError> {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.check_condition()?;
        self.seal()?;
        let (done, wait) = oneshot::channel();
        let stop = Task::Stop { last_version: self.last_version, done };
        let stopped = self.checkpoints.send(stop).is_ok() && wait.blocking_recv().is_ok();
        if !stopped {
            return Err(Unavailable::Poisoned("the checkpoint thread is gone".to_owned()).into());
        }
        self.check_condition()
    }
}

/// How long to wait for a group to complete.
///
/// Writers that were answered together come back together, but not at once: the first to return
/// would get a sync of its own, and the others would wait for it. So a group waits for as many as
/// there were last time, while they keep coming, and never for longer than a sync takes. One
/// writer alone never waits, and nobody does who asks for no sync.
#[derive(Debug, Default)]
struct GatherPace {
    last_group: usize,
    last_sync: Duration,
}

/// When waiting ends.
struct Patience {
    end: Instant,
    next_arrival: Instant,
}

impl GatherPace {
    /// How long after one arrival the next has to come, as a part of a sync.
    const ARRIVALS_PER_SYNC: u32 = 3;
    const LONGEST: Duration = Duration::from_millis(2);
    /// A group of so many bytes is worth a sync of its own and waits for nobody: who sends that much has
    /// gathered before, and yielding for others cost a tenth of a commit.
    const WORTH_A_SYNC: usize = 32 << 10;
    /// For fewer the processor's time is better spent elsewhere.
    const WORTH_STAYING_AWAKE: usize = 8;

    fn patience(&self) -> Patience {
        let now = now();
        let longest = self.last_sync.min(Self::LONGEST);
        Patience { end: now + longest, next_arrival: now + longest / Self::ARRIVALS_PER_SYNC }
    }

    fn arrived(&self, patience: &mut Patience) {
        let longest = self.last_sync.min(Self::LONGEST);
        patience.next_arrival = now() + longest / Self::ARRIVALS_PER_SYNC;
    }

    fn expects_more(&self, group: &Group, patience: &Patience) -> bool {
        group.waiting.len() < self.last_group
            && group.bytes < Self::WORTH_A_SYNC
            && now() < patience.end.min(patience.next_arrival)
    }

    fn looks_out(&self, patience: &Patience) -> bool {
        self.last_group >= Self::WORTH_STAYING_AWAKE && now() < patience.end
    }

    fn answered(&mut self, group: usize, synced: bool) {
        self.last_group = if synced { group } else { 0 };
    }

    fn synced_in(&mut self, time: Duration) {
        self.last_sync = time;
    }
}

/// How long a sync takes is measured, not injected: it decides nothing but how long to wait.
fn now() -> Instant {
    Instant::now()
}

impl Request {
    fn wants_sync(&self) -> bool {
        match self {
            Request::Commit { batch, .. } => batch.durability == Durability::Fsync,
            Request::Trim { .. } | Request::Retain { .. } | Request::Close { .. } => true,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Request::Commit { bytes, .. } => *bytes,
            Request::Trim { .. } | Request::Retain { .. } | Request::Close { .. } => 0,
        }
    }

    fn refuse(self, error: CommitError) {
        match self {
            Request::Commit { reply, batch, .. } => answer(reply, (Err(error), batch)),
            Request::Trim { reply, .. } | Request::Retain { reply, .. } => {
                answer(reply, Err(error));
            }
            Request::Close { reply } => answer(reply, Err(error)),
        }
    }

    /// Answers what it asked for, and with the first commit what all of them were stored by.
    fn answer(
        self,
        shared: &Shared,
        outcome: Outcome,
        durability: Durability,
        write: &mut Option<WriteStats>,
    ) {
        match (self, outcome) {
            (Request::Commit { reply, batch, .. }, Outcome::Committed { positions, version }) => {
                let write = write.take();
                let committed = Committed { positions, version, durability, write };
                answer(reply, (Ok(committed), batch));
            }
            (
                Request::Trim { reply, .. } | Request::Retain { reply, .. },
                Outcome::Trimmed(topic),
            ) => {
                let view = shared.view();
                let bounds = view.topics.get(&topic).map_or(Bounds::EMPTY, |view| view.bounds());
                answer(reply, Ok(bounds));
            }
            (request, Outcome::Refused(error)) => request.refuse(error),
            _ => unreachable!("outcomes fit their requests"),
        }
    }
}

/// Who dropped the future does not want the answer.
fn answer<T>(reply: oneshot::Sender<T>, result: T) {
    let _ = reply.send(result);
}
