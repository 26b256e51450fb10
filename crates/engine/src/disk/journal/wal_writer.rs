//! Appends frames to the write-ahead log, syncs it, and seals full files for the checkpoint thread.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;
use std::{io, mem};

use prombus_proto::Topic;
use tokio::sync::oneshot;

use super::gather_pace::{GatherPace, now};
use super::staging::frame::StagedFrame;
use crate::disk::checkpoint::sealed_wal::{SealedWal, TouchedTopic};
use crate::disk::checkpoint::{CheckpointTask, StopRequest};
use crate::disk::shared::Shared;
use crate::disk::storage::faults::is_temporary;
use crate::disk::wal::file::WalFile;
use crate::{CommitError, Condition, Durability, Unavailable};

/// How much space is zeroed ahead of small synced frames.
const ZERO_AHEAD_BYTES: u64 = 128 << 10;

/// The most keys that one WAL file may change. They stay in memory until its checkpoint, and small
/// ones, such as deduplication marks, take several times their size in the file.
const MAX_KEYS_PER_WAL: usize = 50_000;

/// The counters that the journal continues from after recovery.
pub(crate) struct JournalStart {
    pub(crate) next_wal: u64,
    pub(crate) next_frame: u64,
    pub(crate) last_version: u64,
}

pub(super) struct WalWriter {
    shared: Arc<Shared>,
    checkpoints: mpsc::Sender<CheckpointTask>,
    next_wal: u64,
    pub(super) next_frame: u64,
    pub(super) last_version: u64,
    open: Option<OpenWal>,
    /// Sealed files that were not synced when they were sealed.
    unsynced: Vec<Weak<WalFile>>,
}

/// The WAL file that is being written.
struct OpenWal {
    file: Arc<WalFile>,
    end: u64,
    last_frame_bytes: u64,
    /// The offset up to which the space after `end` is zeroed.
    zeroed_to: u64,
    unsynced: bool,
    /// Whether a failed write was cut off and no sync followed yet.
    has_unsynced_cut: bool,
    /// The topics it changed, as they are after its last frame. Kept up to date with every frame:
    /// collecting it when the file is sealed would delay a commit if there are many topics.
    touched: BTreeMap<Topic, TouchedTopic>,
}

/// What to do while too many sealed files wait for their checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackPressure {
    Wait,
    /// The batch frees the space that the checkpoints wait for.
    Ignore,
}

/// The durability of a stored batch, and how long its sync took.
#[derive(Clone, Copy)]
pub(super) struct Persisted {
    pub(super) durability: Durability,
    pub(super) sync_time: Option<Duration>,
}

impl WalWriter {
    pub(super) fn new(
        shared: Arc<Shared>,
        checkpoints: mpsc::Sender<CheckpointTask>,
        start: &JournalStart,
    ) -> Self {
        Self {
            shared,
            checkpoints,
            next_wal: start.next_wal,
            next_frame: start.next_frame,
            last_version: start.last_version,
            open: None,
            unsynced: Vec::new(),
        }
    }

    /// Appends a frame to the log and returns its offset.
    pub(super) fn write(
        &mut self,
        frame: &StagedFrame,
        back_pressure: BackPressure,
    ) -> Result<u64, CommitError> {
        let bytes = frame.header.frame_bytes();
        let limit = self.shared.options.wal_file_bytes;
        let is_full = |wal: &OpenWal| wal.end + bytes > limit || self.has_many_keys(wal);
        if self.open.as_ref().is_some_and(is_full) {
            self.seal()?;
        }
        if self.open.is_none() {
            let needed = WalFile::first_frame_offset() + bytes;
            if back_pressure == BackPressure::Wait {
                self.wait_for_checkpoints()?;
            }
            self.open = Some(self.create_wal(needed..=limit.max(needed))?);
        }
        let wal = self.open.as_mut().expect("opened above");
        let offset = wal.end;
        if let Err(error) = wal.file.write_at(offset, &frame.parts()) {
            // A partial frame must not look like a torn batch later. The next sync makes the cut
            // durable: a crash that undoes it would bring back a part of what was refused.
            let truncated = wal.file.truncate(offset);
            wal.zeroed_to = offset;
            (wal.unsynced, wal.has_unsynced_cut) = (true, true);
            return Err(match truncated {
                Ok(()) => self.fail(&error),
                Err(_) => self.poison(&error),
            });
        }
        wal.end += bytes;
        self.shared.meter.set_open_wal_bytes(wal.end);
        wal.last_frame_bytes = bytes;
        wal.unsynced = true;
        if matches!(self.shared.condition(), Condition::Full(_)) {
            self.shared.set_condition(Condition::Healthy);
        }
        Ok(offset)
    }

    fn has_many_keys(&self, wal: &OpenWal) -> bool {
        self.shared.view().memtable.keys_in_newest_wal(wal.file.number) >= MAX_KEYS_PER_WAL
    }

    /// Zeroes the space of the next frames, while the answered committers come back.
    ///
    /// The first write into preallocated space makes the filesystem record in its own journal that
    /// the space is now in use, and a sync waits for that: 20 KiB took 250 µs instead of 135. So the
    /// space of many small frames is zeroed at once. For large frames the cost is negligible.
    pub(super) fn zero_ahead(&mut self) {
        let limit = self.shared.options.wal_file_bytes;
        let Some(wal) = self.open.as_mut() else { return };
        let has_room_for_next = wal.end + 2 * wal.last_frame_bytes <= wal.zeroed_to;
        if wal.last_frame_bytes > ZERO_AHEAD_BYTES / 2 || has_room_for_next {
            return;
        }
        let from = wal.end.max(wal.zeroed_to);
        let to = (from + ZERO_AHEAD_BYTES).min(limit);
        if from < to {
            wal.file.zero(from, to);
            wal.zeroed_to = to;
        }
    }

    /// Waits while too many sealed files wait for their checkpoint.
    fn wait_for_checkpoints(&self) -> Result<(), CommitError> {
        let shared = &self.shared;
        let give_up = || match shared.condition() {
            Condition::Full(reason) => Some(CommitError::Full(reason)),
            Condition::Poisoned(reason) => Some(Unavailable::Poisoned(reason).into()),
            Condition::Healthy | Condition::Closed => None,
        };
        shared.pending_checkpoints.wait_below(shared.options.wal_files_waiting, give_up)
    }

    fn create_wal(&mut self, bytes: RangeInclusive<u64>) -> Result<OpenWal, CommitError> {
        let shared = &self.shared;
        let faults = Arc::clone(&shared.options.faults);
        match WalFile::create(&shared.layout, self.next_wal, bytes, faults) {
            Ok(file) => {
                self.next_wal += 1;
                let end = WalFile::first_frame_offset();
                shared.view_mut().wal_ends.insert(file.number, end);
                Ok(OpenWal {
                    file: Arc::new(file),
                    end,
                    last_frame_bytes: 0,
                    zeroed_to: 0,
                    unsynced: false,
                    has_unsynced_cut: false,
                    touched: BTreeMap::new(),
                })
            }
            Err(error) => Err(self.fail(&error)),
        }
    }

    /// Closes the WAL file and hands it to the checkpoint thread.
    fn seal(&mut self) -> Result<(), CommitError> {
        let Some(mut wal) = self.open.take() else { return Ok(()) };
        if wal.has_unsynced_cut {
            // Once a later file exists, what a crash brings back would not look like a torn tail.
            wal.file.sync().map_err(|error| self.poison(&error))?;
            wal.unsynced = false;
        }
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
        let sealed = SealedWal {
            file: wal.file,
            touched: wal.touched,
            ids,
            end: wal.end,
            next_frame: self.next_frame,
            last_version: self.last_version,
            damaged: false,
        };
        self.shared.pending_checkpoints.add(wal.end);
        self.shared.meter.set_open_wal_bytes(0);
        self.checkpoints.send(CheckpointTask::Checkpoint(sealed)).map_err(|_| checkpointer_gone())
    }

    /// Syncs the log if `wanted`, earlier files first.
    pub(super) fn sync_if(
        &mut self,
        wanted: bool,
        pace: &mut GatherPace,
    ) -> Result<Persisted, CommitError> {
        if !wanted {
            return Ok(Persisted { durability: Durability::Buffered, sync_time: None });
        }
        let mut sync_time = None;
        let start = now();
        // A later file must not survive a crash that loses an earlier one.
        for earlier in mem::take(&mut self.unsynced) {
            if let Some(earlier) = earlier.upgrade().filter(|earlier| !earlier.is_checkpointed()) {
                earlier.sync().map_err(|error| self.poison(&error))?;
                sync_time = Some(start.elapsed());
            }
        }
        if let Some(wal) = self.open.as_mut().filter(|wal| wal.unsynced) {
            let started = now();
            if let Err(error) = wal.file.sync() {
                return Err(self.poison(&error));
            }
            (wal.unsynced, wal.has_unsynced_cut) = (false, false);
            pace.synced_in(started.elapsed());
            sync_time = Some(start.elapsed());
        }
        Ok(Persisted { durability: Durability::Fsync, sync_time })
    }

    /// Makes the frame that was written at `offset` visible to readers.
    pub(super) fn publish(&mut self, frame: StagedFrame, offset: u64) {
        self.next_frame += 1;
        let wal = self.open.as_mut().expect("a frame was just written");
        // Ids first: an event that a reader has seen must be found by its id.
        frame.add_ids(&mut self.shared.ids_mut().newest);
        let StagedFrame {
            header, mut extents, state, newest_ids, new_topics, deleted_topics, ..
        } = frame;
        extents.iter_mut().for_each(|extent| extent.offset += offset);
        let trimmed = header.trims.iter().map(|trim| &trim.topic).chain(&deleted_topics);
        let appended = header.sections.iter().map(|section| &section.topic);
        {
            let mut view = self.shared.view_mut();
            for (topic, ordinal) in &new_topics {
                view.add_topic(topic, *ordinal);
            }
            view.apply(&wal.file, &header, &extents, &newest_ids, state);
            view.wal_ends.insert(wal.file.number, wal.end);
            for topic in trimmed.clone().chain(appended) {
                let touched = TouchedTopic::of(&view.topics[topic]);
                match wal.touched.get_mut(topic) {
                    Some(known) => *known = touched,
                    None => drop(wal.touched.insert(topic.clone(), touched)),
                }
            }
        }
        self.shared.end_watches_of(&deleted_topics);
        self.shared.wake(header.sections.iter().map(|section| {
            (&section.topic, section.first.plus(u64::from(section.count)).previous())
        }));
        for topic in trimmed {
            // If the checkpoint thread is gone, a restart reclaims the space.
            let _ = self.checkpoints.send(CheckpointTask::Reclaim(topic.clone()));
        }
    }

    /// Tells the checkpoint thread to give up on a full disk.
    pub(super) fn stop_waiting_for_space(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
    }

    /// Seals the open file and waits until the checkpoint thread has finished and stopped.
    pub(super) fn seal_and_stop(&mut self) -> Result<(), CommitError> {
        self.seal()?;
        let (done, wait) = oneshot::channel();
        let stop = StopRequest { last_version: self.last_version, done };
        let stop = CheckpointTask::Stop(stop);
        let stopped = self.checkpoints.send(stop).is_ok() && wait.blocking_recv().is_ok();
        if stopped { Ok(()) } else { Err(checkpointer_gone()) }
    }

    /// Refuses the batch if the disk is full, and poisons the engine on any other error.
    fn fail(&self, error: &io::Error) -> CommitError {
        if is_temporary(error) {
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
}

fn checkpointer_gone() -> CommitError {
    Unavailable::Poisoned("the checkpoint thread has stopped".to_owned()).into()
}
