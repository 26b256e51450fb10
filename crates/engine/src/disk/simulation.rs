//! Runs the engine over a simulated disk and compares it with a model of what was acknowledged.
//!
//! Journal and checkpoint thread run in turns on one thread, so a seed determines everything: the
//! commits, the faults, the moment at which the power fails, and what the disk loses then. A failure
//! prints its seed. To repeat it: `SIMULATION_SEED=N cargo test -p prombus-engine simulation`.
//! `SIMULATION_STEPS` sets how many steps all seeds make together.

mod backups;
mod id_faults;
mod model;
mod scenarios;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use prombus_proto::{
    EncodedEvent, Event, EventId, Headers, ManualClock, Payload, Seq, Timestamp, Topic,
};
use rustix::io::Errno;
use tokio::sync::oneshot;

use self::backups::RunningBackup;
use self::model::{Model, NewCommit};
use super::checkpoint::{CheckpointTask, Checkpointer};
use super::journal::{Journal, Request};
use super::read;
use super::record::SuffixChecksum;
use super::recovery::{self, Recovered};
use super::shared::Shared;
use super::storage::file_system::FileSystem;
use super::storage::file_system::simulated::{Dice, Faults, Loss, SimulatedDisk};
use super::storage::layout::Layout;
use crate::{
    Batch, CommitError, Committed, Durability, Expect, Incident, OpenError, ReadBudget, ReadError,
    Retention, StateKey, StateOp,
};

const STEPS_PER_SEED: u64 = 400;
const NOW: Timestamp = Timestamp(1_700_000_000_000);
const TOPICS: [&str; 4] = ["orders", "payments.eu", "payments.us", "audit"];
/// The key that every commit sets to its own number.
const COMMIT_KEY: &str = "last commit";

#[test]
fn simulation_loses_nothing_that_was_acknowledged() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect(name));
    if let Some(seed) = number("SIMULATION_SEED") {
        Simulation::new(seed).run();
        return;
    }
    let seeds = number("SIMULATION_STEPS").unwrap_or(400_000) / STEPS_PER_SEED;
    for seed in 0..seeds.max(1) {
        let run = std::panic::catch_unwind(|| Simulation::new(seed).run());
        assert!(run.is_ok(), "repeat this failure with SIMULATION_SEED={seed}");
    }
}

struct Simulation {
    dice: Dice,
    disk: Arc<SimulatedDisk>,
    clock: ManualClock,
    /// With commits that are not synced, the log cannot tell a lost part from damage, so the disk
    /// loses all or nothing.
    loss: Loss,
    store: Option<OpenStore>,
    model: Model,
    start_damaged: bool,
    packing: Packing,
    backup: Option<RunningBackup>,
}

/// Options that decide whether topics share packs, and how often the whole catalog is written.
#[derive(Clone, Copy)]
struct Packing {
    small_files: usize,
    packed_bytes: u64,
    catalog_edits: u64,
}

/// An open store without its threads.
struct OpenStore {
    shared: Arc<Shared>,
    journal: Journal,
    checkpointer: Checkpointer,
    tasks: std::sync::mpsc::Sender<CheckpointTask>,
}

type CommitReply = oneshot::Receiver<(Result<Committed, CommitError>, Batch)>;

impl Simulation {
    fn new(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let disk = SimulatedDisk::new(dice.below(u64::MAX));
        let clock = ManualClock::at(NOW);
        let loss = if dice.one_in(3) { Loss::AllOrNothing } else { Loss::AnyPart };
        let packing = Packing {
            small_files: *dice.pick(&[0, 1, usize::MAX]),
            packed_bytes: *dice.pick(&[1 << 10, 4 << 10]),
            catalog_edits: *dice.pick(&[1, 3, 64]),
        };
        let (store, model) = (None, Model::default());
        let (start_damaged, backup) = (false, None);
        Self { dice, disk, clock, loss, store, model, start_damaged, packing, backup }
    }

    fn run(&mut self) {
        self.reopen();
        for _ in 0..STEPS_PER_SEED {
            self.step();
            if !self.disk.has_power() {
                self.crash();
            }
        }
        self.crash();
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..48 => self.commit(),
            48..65 => self.work(),
            65..70 => self.go_on_with_backup(),
            70..75 => self.trim(),
            75..77 => self.retain(),
            77..79 => self.delete(),
            79..88 => self.check_reading(),
            88..92 => self.change_faults(),
            92..94 => self.disk.fail_power_after(self.dice.below(60)),
            94 => self.clock.advance_ms(self.dice.below(10_000)),
            95 => self.change_clock(),
            96..98 => self.kill(),
            _ => self.crash(),
        }
    }

    fn options(&self) -> crate::DiskOptions {
        crate::DiskOptions {
            clock: Arc::new(self.clock.clone()),
            wal_file_bytes: 8 << 10,
            // Without threads nobody could wait.
            wal_files_waiting: usize::MAX,
            segment_bytes: 12 << 10,
            min_adopted_extent_bytes: 512,
            small_files: self.packing.small_files,
            packed_bytes: self.packing.packed_bytes,
            catalog_edits: self.packing.catalog_edits,
            start_damaged: self.start_damaged,
            ..crate::DiskOptions::at("/store")
        }
    }

    /// Ends the process: everything written is still there.
    fn kill(&mut self) {
        if !self.disk.has_power() {
            return self.crash();
        }
        self.forget_backup();
        self.store = None;
        self.model.killed();
        self.disk.end_faults();
        self.reopen();
    }

    fn crash(&mut self) {
        self.forget_backup();
        self.store = None;
        self.disk.restart(self.loss);
        // The power may fail again while the store recovers.
        if self.dice.one_in(4) {
            self.disk.fail_power_after(self.dice.below(80));
            let _ = self.open();
            self.disk.restart(self.loss);
        }
        self.reopen();
    }

    fn open(&self) -> Result<OpenStore, OpenError> {
        let root = PathBuf::from("/store");
        let fs = FileSystem::Simulated(Arc::clone(&self.disk));
        let layout = Layout::on(fs.clone(), root.clone());
        let io = |source| OpenError::Io { path: root.clone(), source };
        fs.create_folder(&root).map_err(io)?;
        fs.sync_folder(std::path::Path::new("/")).map_err(io)?;
        let Recovered { shared, catalog, sealed, start } =
            recovery::recover(&self.options(), layout)?;
        let shared = Arc::new(shared);
        let (tasks, checkpointer) = Checkpointer::new(Arc::clone(&shared), catalog).map_err(io)?;
        for wal in sealed {
            shared.pending_checkpoints.add(wal.end);
            tasks.send(CheckpointTask::Checkpoint(wal)).expect("the receiver exists");
        }
        let (_, receiver) = tokio::sync::mpsc::channel(1);
        let journal = Journal::new(Arc::clone(&shared), receiver, tasks.clone(), &start);
        Ok(OpenStore { shared, journal, checkpointer, tasks })
    }

    /// Opens the store on a disk without faults, and checks all of it.
    fn reopen(&mut self) {
        let store = self.open().unwrap_or_else(|error| panic!("the store does not open: {error}"));
        for incident in store.shared.incidents() {
            let harmless = matches!(incident, Incident::TornTail { .. } | Incident::Rebuilt { .. });
            assert!(harmless, "reported after a crash: {incident:?}");
        }
        self.model.settle(&store.shared);
        self.model.check(&store.shared);
        self.check_nothing_is_held();
        self.store = Some(store);
    }

    fn store(&mut self) -> &mut OpenStore {
        self.store.as_mut().expect("a store is open between steps")
    }

    fn work(&mut self) {
        self.store().checkpointer.work();
    }

    fn commit(&mut self) {
        let is_buffered = self.loss == Loss::AllOrNothing && self.dice.one_in(4);
        let durability = if is_buffered { Durability::Buffered } else { Durability::Fsync };
        let commits: Vec<_> = (0..=self.dice.below(3)).map(|_| self.new_commit()).collect();
        self.serve(commits, durability);
    }

    fn serve(&mut self, commits: Vec<NewCommit>, durability: Durability) {
        let (requests, replies): (Vec<_>, Vec<_>) =
            commits.iter().map(|commit| commit_request(commit, durability)).unzip();
        self.store().journal.serve_all(requests);
        for (commit, mut reply) in commits.into_iter().zip(replies) {
            let (answer, _) = reply.try_recv().expect("the journal answers before it returns");
            self.model.answered(commit, answer);
        }
        self.reopen_if_poisoned();
    }

    fn trim(&mut self) {
        let name = *self.dice.pick(&TOPICS);
        let (first, next) = self.model.bounds(name);
        let below = Seq(first.0 + self.dice.below(next.0 - first.0 + 3));
        let (reply, mut answer) = oneshot::channel();
        let request = Request::Trim { topic: topic(name), below, reply };
        self.store().journal.serve_all(vec![request]);
        let answer = answer.try_recv().expect("the journal answers before it returns");
        self.model.trimmed(name, below, &answer.map(|bounds| bounds.first));
        self.reopen_if_poisoned();
    }

    /// Drops old events, as far as the arrivals and sizes of segments allow.
    fn retain(&mut self) {
        let name = *self.dice.pick(&TOPICS);
        let limit = |dice: &Dice, bound| dice.one_in(2).then(|| dice.below(bound));
        let rule = Retention {
            max_age_ms: limit(&self.dice, 60_000),
            max_bytes: limit(&self.dice, 60 << 10),
            revision: self.model.take_number(),
        };
        let (reply, mut answer) = oneshot::channel();
        let request = Request::Retain { topic: topic(name), rule, reply };
        self.store().journal.serve_all(vec![request]);
        let answer = answer.try_recv().expect("the journal answers before it returns");
        self.model.retained(name, &answer.map(|bounds| bounds.first));
        self.reopen_if_poisoned();
    }

    /// Somebody sets the clock, minutes forwards or back.
    fn change_clock(&self) {
        self.clock.set(NOW.plus_ms(self.dice.below(600_000)));
    }

    /// Deletes a topic, sometimes among commits that are stored by the same write.
    fn delete(&mut self) {
        let name = *self.dice.pick(&TOPICS);
        let before: Vec<_> = (0..self.dice.below(2)).map(|_| self.new_commit()).collect();
        let mut deletion = self.new_commit();
        deletion.deleted = Some(name.to_owned());
        if self.dice.one_in(2) {
            deletion.events.clear();
        }
        let after = (0..self.dice.below(2)).map(|_| self.new_commit());
        let commits: Vec<_> = before.into_iter().chain([deletion]).chain(after).collect();
        self.serve(commits, Durability::Fsync);
    }

    fn reopen_if_poisoned(&mut self) {
        let condition = self.store().shared.condition();
        if matches!(condition, crate::Condition::Poisoned(_)) && self.disk.has_power() {
            if self.dice.one_in(2) { self.kill() } else { self.crash() }
        }
    }

    /// Everything acknowledged is readable at any time, also while the disk refuses to write.
    fn check_reading(&mut self) {
        let store = self.store.as_ref().expect("a store is open between steps");
        self.disk.without_faults(|| self.model.check(&store.shared));
    }

    fn change_faults(&mut self) {
        let error = match self.dice.below(6) {
            0 => Errno::IO,
            1 => Errno::MFILE,
            2..5 => Errno::NOSPC,
            _ => return self.disk.set_faults(None),
        };
        let one_in = *self.dice.pick(&[1, 2, 5, 20]);
        self.disk.set_faults(Some(Faults { error, one_in }));
    }

    fn new_commit(&mut self) -> NewCommit {
        let number = self.model.take_number();
        let events = (0..self.dice.below(4)).map(|index| self.new_event(number, index)).collect();
        let keys = (0..self.dice.below(3)).map(|_| {
            let key = format!("key {}", self.dice.below(12));
            let is_delete = self.dice.one_in(4);
            (key, (!is_delete).then(|| format!("value {number}")))
        });
        NewCommit { number, deleted: None, events, keys: keys.collect() }
    }

    fn new_event(&mut self, commit: u64, index: u64) -> (String, EventId, EncodedEvent) {
        let name = *self.dice.pick(&TOPICS);
        let n = commit * 8 + index;
        let (kind, random) = (self.dice.below(8), self.dice.index(usize::MAX));
        let known = if kind == 0 { self.model.some_id(name, random) } else { None };
        let text = match kind {
            0..3 => format!("event {n}"),
            3 if random % 4 == 0 => {
                // Far ahead of the clock.
                format!("019{:05x}-{:04x}-7000-8000-{n:012x}", random & 0xF, random >> 8 & 0xFFFF)
            }
            // A UUIDv7 out of order.
            3 => format!("018bcfe5-{:04x}-7000-8000-{n:012x}", random & 0xFFFF),
            _ => format!("018bcfe6-{:04x}-7000-8000-{n:012x}", (n >> 4) & 0xFFFF),
        };
        let id = known.unwrap_or_else(|| EventId::new(&text).expect("a valid id"));
        let filler = "x".repeat(self.dice.index(900));
        let payload = format!("{{\"n\":{n},\"filler\":\"{filler}\"}}");
        let event = Event {
            id: id.clone(),
            ts: NOW.plus_ms(n),
            topic: topic(name),
            key: None,
            headers: Headers::default(),
            payload: Payload::parse(Bytes::from(payload)).expect("valid JSON"),
            caused_by: vec![],
            tags: vec![],
            sid: None,
        };
        (name.to_owned(), id, event.encode())
    }
}

fn commit_request(commit: &NewCommit, durability: Durability) -> (Request, CommitReply) {
    let put = |key: &str, value: String| StateOp::Put {
        key: state_key(key),
        value: Bytes::from(value),
        expires_at: None,
        expect: Expect::Any,
    };
    let mut state =
        vec![put(COMMIT_KEY, commit.number.to_string()), put(&commit.marker(), String::new())];
    state.extend(commit.keys.iter().map(|(key, value)| match value {
        Some(value) => put(key, value.clone()),
        None => StateOp::Delete { key: state_key(key), expect: Expect::Any },
    }));
    let events: Vec<_> = commit.events.iter().map(|(_, _, event)| event.clone()).collect();
    let suffix_checksums = events.iter().map(SuffixChecksum::of).collect();
    let deleted_topics = commit.deleted.iter().map(|name| topic(name)).collect();
    let batch = Batch { events, expected_last: vec![], deleted_topics, state, durability };
    let bytes = batch.check_sizes().expect("a small batch");
    let (reply, answer) = oneshot::channel();
    (Request::Commit { batch, bytes, suffix_checksums, reply }, answer)
}

fn topic(name: &str) -> Topic {
    Topic::new(name).expect("a valid name")
}

fn state_key(name: &str) -> StateKey {
    StateKey::new(name.as_bytes().to_vec()).expect("a valid key")
}

fn read_value(shared: &Shared, key: &str) -> Option<String> {
    let entry = read::state::get(shared, &state_key(key)).expect("the disk has no faults");
    entry.map(|entry| String::from_utf8(entry.value.to_vec()).expect("text"))
}

fn read_number(shared: &Shared, key: &str) -> u64 {
    read_value(shared, key).map_or(0, |value| value.parse().expect("a number"))
}

/// Reads all events of a topic.
fn read_events(shared: &Shared, topic: &Topic) -> Vec<crate::StoredEvent> {
    let mut all = Vec::new();
    let mut from = Seq::FIRST;
    loop {
        let page = read::events::read(shared, topic, from, ReadBudget::of_bytes(4 << 10));
        let events = match page {
            Ok(page) => page.events,
            Err(ReadError::Damaged(damaged)) => panic!("damaged: {damaged:?}"),
            Err(error) => panic!("the disk has no faults: {error}"),
        };
        let Some(last) = events.last() else { return all };
        from = last.seq.next();
        all.extend(events);
    }
}
