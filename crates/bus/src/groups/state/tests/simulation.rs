//! The store, the gateways and the consumers of a simulated group.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use prombus_engine::{
    CommitError, Conflict, Durability, Expect, Position, ReadError, StateEntry, StateKey, StateOp,
    StoredEvent, Unavailable, Version,
};
use prombus_proto::{
    EncodedEvent, ErrorCode, EventId, Group, NewEvent, Payload, Seq, Timestamp, Topic,
};
use tokio::sync::{Notify, oneshot};

use super::super::*;
use crate::error::Refusal;
use crate::groups::command::{Acked, Command};
use crate::groups::{
    Delivery, DeliveryQueue, GroupInfo, Member, MemberId, RetryDelays, RetryRules,
};
use crate::limits::{Charges, ConnectionLimit};
use crate::memory::Budget;
use crate::metrics::Metrics;
use crate::publish::{CommitReceipt, CommitResult, PublishBatch, Submission};
use crate::stored::cursor::{Attempts, Cursor, Progress};
use crate::stored::group_properties::GroupProperties;
use crate::stored::redrive::Redrive;
use crate::time::Moment;
use crate::topics::StartAt;

pub(super) const ACK_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const MAX_ATTEMPTS: u32 = 3;
const RULES: RetryRules = RetryRules {
    delays: RetryDelays {
        first: Duration::from_millis(100),
        factor: 2,
        max: Duration::from_secs(30),
    },
    max_attempts: MAX_ATTEMPTS,
};

fn topic() -> Topic {
    Topic::new("orders").unwrap()
}

fn group() -> Group {
    Group::new("billing").unwrap()
}

/// The wall clock, which runs along with the monotonic one.
fn wall(instant: Instant) -> Moment {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(|| instant);
    let ms = instant.saturating_duration_since(start).as_millis();
    Moment { instant, timestamp: Timestamp(1_700_000_000_000 + u64::try_from(ms).unwrap()) }
}

fn event_id(seq: u64) -> EventId {
    EventId::new(&format!("e{seq}")).unwrap()
}

/// The durable state: a topic, and the cursor, lease and dead letters of one group.
#[derive(Default)]
pub(super) struct Store {
    /// The last event of the topic.
    pub(super) last: u64,
    pub(super) cursor: Option<(Cursor, Version)>,
    pub(super) properties: GroupProperties,
    /// The gateway that holds the group's lease, and the lease's epoch and version.
    pub(super) lease: Option<(Option<usize>, u64, Version)>,
    pub(super) dead: Letters,
    /// Events published with acknowledgements, by id, and the event each was published for.
    published: HashMap<EventId, u64>,
    /// The events to deliver again.
    pub(super) redrives: BTreeMap<u64, Redrive>,
    /// How often each event was redriven.
    pub(super) redriven: BTreeMap<u64, usize>,
    commits: u64,
}

impl Store {
    /// The events that the stored cursor counts as done.
    pub(super) fn done(&self) -> BTreeSet<u64> {
        let Some((cursor, _)) = &self.cursor else { return BTreeSet::new() };
        let above = cursor.above().zip(cursor.floor.0 + 1..);
        let done = above.filter(|(progress, _)| *progress == Progress::Done).map(|(_, seq)| seq);
        (1..=cursor.floor.0).chain(done).collect()
    }

    pub(super) fn dead_seqs(&self) -> Vec<u64> {
        self.dead.values().filter_map(|seq| *seq).collect()
    }

    /// How many dead letters each event has.
    pub(super) fn letters(&self) -> BTreeMap<u64, usize> {
        let mut letters = BTreeMap::new();
        for seq in self.dead_seqs() {
            *letters.entry(seq).or_default() += 1;
        }
        letters
    }

    /// The events with a dead letter that was not redriven.
    pub(super) fn not_redriven(&self) -> Vec<u64> {
        let times = |seq: &u64| self.redriven.get(seq).copied().unwrap_or(0);
        let letters = self.letters().into_iter().filter(|(seq, letters)| *letters > times(seq));
        letters.map(|(seq, _)| seq).collect()
    }

    /// The events whose newest dead letter was redriven.
    pub(super) fn all_redriven(&self) -> Vec<u64> {
        let letters = self.letters();
        let times = self.redriven.iter().filter(|(seq, times)| letters[*seq] <= **times);
        times.map(|(seq, _)| *seq).collect()
    }

    /// Redrives the newest dead letter of `seq`.
    pub(super) fn redrive(&mut self, seq: u64) {
        let times = self.redriven.entry(seq).or_default();
        *times += 1;
        self.redrives.insert(seq, Redrive::of(Seq(*times as u64)));
    }

    fn redrives(&self) -> Vec<(Seq, Redrive)> {
        self.redrives.iter().map(|(seq, redrive)| (Seq(*seq), *redrive)).collect()
    }

    fn progress(&self) -> Option<StoredProgress> {
        let (cursor, version) = self.cursor.clone()?;
        Some(StoredProgress { cursor, version, redrives: self.redrives() })
    }

    fn apply(&mut self, op: &StateOp) {
        let entry = |key: &StateKey, value: &[u8]| StateEntry {
            key: key.clone(),
            value: value.to_vec().into(),
            version: Version(1),
            expires_at: None,
        };
        match op {
            StateOp::Put { key, value, .. } => {
                let (seq, redrive) = Redrive::read(&entry(key, value)).unwrap().unwrap();
                assert!(self.redrives.insert(seq.0, redrive).is_some(), "{seq} is finished");
            }
            StateOp::Delete { key, .. } => {
                let empty = Redrive::of(Seq(1)).encode();
                let (seq, _) = Redrive::read(&entry(key, &empty)).unwrap().unwrap();
                self.redrives.remove(&seq.0);
            }
        }
    }

    /// The events for which something was published, once for every time.
    pub(super) fn published_for(&self) -> Vec<u64> {
        self.published.values().copied().collect()
    }

    fn version(&self) -> Option<Version> {
        self.cursor.as_ref().map(|(_, version)| *version)
    }

    fn next_version(&mut self) -> Version {
        self.commits += 1;
        Version(self.commits)
    }

    fn commit(&mut self, submission: &Submission, letters: &Letters) -> CommitResult {
        let Some((StateOp::Put { key, value, expect, .. }, redrives)) =
            submission.state.split_last()
        else {
            panic!("every commit of a group stores its cursor");
        };
        let actual = self.version();
        let holds = match expect {
            Expect::Any => true,
            Expect::Absent => actual.is_none(),
            Expect::Version(version) => actual == Some(*version),
        };
        if !holds {
            return Err(CommitError::Conflict(Conflict::State { key: key.clone(), actual }));
        }
        let version = self.next_version();
        self.cursor = Some((Cursor::decode(value).unwrap(), version));
        redrives.iter().for_each(|op| self.apply(op));
        let mut positions = Vec::new();
        for event in &submission.events {
            let id = event.id();
            let duplicate = match letters.get(id) {
                Some(seq) => self.dead.insert(id.clone(), *seq).is_some(),
                None => self.published.insert(id.clone(), published_for(id)).is_some(),
            };
            positions.push(Position { seq: Seq(1), duplicate });
        }
        Ok(CommitReceipt { positions, version })
    }
}

/// Dead letters by id, and the event each is for.
type Letters = HashMap<EventId, Option<u64>>;

/// How the store treats one gateway.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    /// Commits left to fail without storing anything.
    pub(super) commits_lost: u32,
    /// Commits left to be stored but reported as failed.
    pub(super) answers_lost: u32,
    pub(super) reads_failed: u32,
    /// Commits left to be reported as failed, and stored only later.
    pub(super) commits_late: u32,
}

/// One gateway's part in the group.
pub(super) struct Gateway {
    number: usize,
    pub(super) state: GroupState,
    commit: Option<Submission>,
    pub(super) gate: DeliveryGate,
    pub(super) faults: Faults,
    /// Whether it watches the lease of the group's owner.
    pub(super) is_watching: bool,
    pub(super) watches_properties: bool,
    /// Commits that were reported as failed and are still under way.
    late: Vec<Submission>,
    /// Every dead letter encoded so far, and the event it is for.
    letters: Letters,
    /// Acknowledgements sent with events to publish.
    acks_published: u64,
}

impl Gateway {
    pub(super) const fn number(&self) -> usize {
        self.number
    }

    /// The events that are leased to a member, and how often each was tried.
    pub(super) fn leased_to(&self, member: MemberId) -> Vec<(u64, Attempts)> {
        let Some(owned) = self.state.owned() else { return vec![] };
        let leased = owned.leases.leases_of(member);
        leased.into_iter().map(|seq| (seq.0, owned.leases.attempts(seq))).collect()
    }

    pub(super) fn new(number: usize, is_shared: bool) -> Self {
        let cursor_key = Cursor::key(&topic(), &group()).unwrap();
        let name = GroupName { topic: topic(), group: group(), cursor_key };
        let series = Arc::new(Metrics::new()).group(&topic(), &group());
        Self {
            number,
            state: {
                let observers = Observers { series, notices: Arc::default(), tracer: None };
                GroupState::new(name, RULES, is_shared, observers, Arc::new(Notify::new()))
            },
            commit: None,
            gate: DeliveryGate::Open,
            faults: Faults::default(),
            is_watching: false,
            watches_properties: false,
            late: vec![],
            letters: Letters::new(),
            acks_published: 0,
        }
    }

    /// Hands the group a command, as its task would, and lets it take a turn.
    pub(super) fn send(&mut self, command: Command, store: &mut Store, now: Instant) {
        self.state.handle(command, now);
        self.perform_queued(store, now);
        self.take_turn(store, now);
    }

    /// Lets the group take turns until no timer is due.
    pub(super) fn take_turn(&mut self, store: &mut Store, now: Instant) {
        for _ in 0..10 {
            self.state.begin_turn(now);
            while let Some(effect) = {
                let conditions = self.conditions(store, now);
                self.state.next_effect(&conditions)
            } {
                self.perform(effect, store, now);
            }
            if self.state.wake_at().is_none_or(|at| at > now) {
                return;
            }
        }
        panic!("the group ignores a timer that is due");
    }

    /// Completes the commit in flight, if there is one.
    pub(super) fn complete_commit(&mut self, store: &mut Store, now: Instant) {
        if self.commit.is_some() {
            self.finish_commit(store, now);
            self.perform_queued(store, now);
            self.take_turn(store, now);
        }
    }

    /// Returns `false` if the commit in flight failed.
    fn finish_commit(&mut self, store: &mut Store, now: Instant) -> bool {
        let Some(submission) = self.commit.take() else { return true };
        let answer = if take_one(&mut self.faults.commits_late) {
            self.late.push(submission);
            Err(unavailable().into())
        } else {
            self.answer_commit(|store, letters| store.commit(&submission, letters), store)
        };
        let is_stored = answer.is_ok();
        self.state.committed(answer, now);
        is_stored
    }

    /// Stores the commits that were reported as failed and are still under way, as far as their
    /// expectations hold.
    pub(super) fn land_late(&mut self, store: &mut Store) {
        for submission in self.late.drain(..) {
            let _ = store.commit(&submission, &self.letters);
        }
    }

    fn answer_commit(
        &mut self,
        commit: impl FnOnce(&mut Store, &Letters) -> CommitResult,
        store: &mut Store,
    ) -> CommitResult {
        if take_one(&mut self.faults.commits_lost) {
            return Err(unavailable().into());
        }
        let result = commit(store, &self.letters);
        if take_one(&mut self.faults.answers_lost) {
            return Err(unavailable().into());
        }
        result
    }

    fn perform_queued(&mut self, store: &mut Store, now: Instant) {
        while let Some(effect) = self.state.queued_effect() {
            self.perform(effect, store, now);
        }
    }

    fn conditions(&self, store: &Store, now: Instant) -> Conditions {
        let (topic_end, durability) = (Seq(store.last), Durability::Fsync);
        Conditions { now, timestamp: wall(now).timestamp, topic_end, durability, gate: self.gate }
    }

    fn perform(&mut self, effect: Effect, store: &mut Store, now: Instant) {
        match effect {
            Effect::Load(joining) => {
                let loaded = self.read().map(|()| {
                    let created = store.cursor.is_none();
                    let first = Cursor::starting_behind(Seq::ZERO, Timestamp(1));
                    let cursor = store.cursor.get_or_insert((first, Version(0))).0.clone();
                    let (topic_end, properties) = (Seq(store.last), store.properties);
                    let redrives = store.redrives();
                    Loaded { cursor, redrives, topic_end, properties, at: wall(now), created }
                });
                self.state.loaded(joining, loaded);
            }
            Effect::Claim(claim) => {
                let outcome = self.claim(&claim, store, now);
                self.state.claimed(claim, outcome);
            }
            Effect::StoreProperties(properties, named_by) => {
                let stored = self.read().map(|()| store.properties = properties);
                self.state.properties_stored(properties, named_by, stored);
            }
            Effect::ReadRedrives => {
                self.finish_commit(store, now);
                let redrives = self.read().map(|()| store.redrives());
                self.state.redrives_read(redrives, wall(now));
            }
            Effect::Seek(_) => panic!("nobody moves the group"),
            Effect::WatchLease => (self.is_watching, self.watches_properties) = (true, false),
            Effect::WatchProperties => (self.is_watching, self.watches_properties) = (false, true),
            Effect::Unwatch => (self.is_watching, self.watches_properties) = (false, false),
            Effect::LookUpMarks(_) => panic!("nothing is marked"),
            Effect::Read { from, events, .. } => {
                let outcome = match self.read() {
                    Ok(()) if from.0 <= store.last => ReadOutcome::Events(
                        (from.0..=store.last).take(events.min(7)).map(event).collect(),
                    ),
                    Ok(()) => ReadOutcome::NotYet,
                    Err(_) => ReadOutcome::Failed(ReadError::Unavailable(unavailable())),
                };
                self.state.events_read(from, outcome, now);
            }
            Effect::ReadCursor(failed) => {
                if failed.is_some() || self.finish_commit(store, now) {
                    let stored = self.read().map(|()| store.progress());
                    self.state.cursor_read(failed, stored, now);
                }
            }
            Effect::AnswerStoredAck(StoredAck { ack, stale, published }) => {
                let is_stored = |(_, id): &(Topic, EventId)| store.published.contains_key(id);
                let found = published.iter().all(is_stored);
                let position = Position { seq: Seq(1), duplicate: false };
                let published = vec![position; published.len()];
                let lost = Refusal::new(ErrorCode::LeaseLost, "not published");
                ack.answer(found.then_some(Acked { stale, published }).ok_or(lost));
            }
            Effect::EncodeDeadLetters(mut letters) => {
                let encoded = self.read().map(|()| self.encode(&mut letters));
                let conditions = self.conditions(store, now);
                self.state.dead_letters_encoded(letters, encoded, &conditions);
            }
            Effect::Commit(submission) => {
                assert!(self.commit.is_none(), "a group commits one thing at a time");
                self.commit = Some(submission);
            }
            Effect::Release => {
                let released = self.release(store);
                self.state.released(released, now);
            }
        }
    }

    fn read(&mut self) -> Result<(), Refusal> {
        match take_one(&mut self.faults.reads_failed) {
            true => Err(ReadError::Unavailable(unavailable()).into()),
            false => Ok(()),
        }
    }

    fn encode(&mut self, letters: &mut [DeadLetterPending]) -> Vec<EncodedEvent> {
        let mut encoded = Vec::new();
        for letter in letters {
            let new_id = format!("g{}-{}", self.number, self.letters.len());
            let id = letter.letter_id.get_or_insert_with(|| EventId::new(&new_id).unwrap());
            self.letters.insert(id.clone(), letter.seq.map(|seq| seq.0));
            let event = NewEvent::of(Payload::of(&letter.attempts).unwrap());
            let topic = Topic::new("dlq.orders").unwrap();
            encoded.push(event.complete(topic, || id.clone(), Timestamp(1)).into_encoded());
        }
        encoded
    }

    fn claim(&mut self, claim: &Claim, store: &mut Store, now: Instant) -> ClaimOutcome {
        if let Err(refusal) = self.read() {
            return ClaimOutcome::Failed(refusal);
        }
        let expired = match claim {
            Claim::Join(_) => None,
            Claim::TakeOver { expired, .. } => *expired,
        };
        if let Some((Some(holder), _, version)) = store.lease
            && holder != self.number
            && Some(version) != expired
        {
            return ClaimOutcome::OwnedElsewhere { properties: store.properties, lease: None };
        }
        let number = self.number;
        let mut claimed = None;
        let answer = self.answer_commit(
            |store, _| {
                let version = store.next_version();
                let epoch = store.lease.map_or(0, |(_, epoch, _)| epoch) + 1;
                let first = Cursor::starting_behind(Seq::ZERO, Timestamp(1));
                let mut cursor = store.cursor.take().map_or(first, |(cursor, _)| cursor);
                cursor.epoch = Some(epoch);
                store.cursor = Some((cursor.clone(), version));
                store.lease = Some((Some(number), epoch, version));
                claimed = Some((cursor, epoch));
                Ok(CommitReceipt { positions: vec![], version })
            },
            store,
        );
        match (answer, claimed) {
            (Ok(CommitReceipt { version, .. }), Some((cursor, epoch))) => {
                let (topic_end, properties) = (Seq(store.last), store.properties);
                let (at, created) = (wall(now), epoch == 1);
                let redrives = store.redrives();
                let group = Loaded { cursor, redrives, topic_end, properties, at, created };
                ClaimOutcome::Claimed { group, epoch, version }
            }
            _ => ClaimOutcome::Unclear(CommitError::from(unavailable()).into()),
        }
    }

    fn release(&mut self, store: &mut Store) -> Result<(), Refusal> {
        self.read()?;
        let number = self.number;
        let answer = self.answer_commit(
            |store, _| {
                let version = store.next_version();
                if let Some((holder, _, stored)) = &mut store.lease
                    && *holder == Some(number)
                {
                    (*holder, *stored) = (None, version);
                }
                Ok(CommitReceipt { positions: vec![], version })
            },
            store,
        );
        answer.map(drop).map_err(Refusal::from)
    }
}

/// A member of the group, and the deliveries it has taken and not answered.
pub(super) struct Consumer {
    pub(super) id: MemberId,
    pub(super) queue: Arc<DeliveryQueue>,
    pub(super) max_in_flight: u32,
    pub(super) held: Vec<Delivery>,
    joined: oneshot::Receiver<Result<GroupInfo, Refusal>>,
}

impl Consumer {
    pub(super) fn join(
        id: u64,
        max_in_flight: u32,
        max_attempts: Option<u32>,
        gateway: &mut Gateway,
        store: &mut Store,
        now: Instant,
    ) -> Option<Self> {
        let share = Budget::new(4 << 20, 0).share();
        let (id, queue) = (MemberId(id), Arc::new(DeliveryQueue::new(1 << 20, share)));
        let (reply, joined) = oneshot::channel();
        let handles = (Arc::clone(&queue), ConnectionLimit::new(None, None, now));
        let member = Member::new(id, handles, max_in_flight, ACK_TIMEOUT);
        let start = StartAt::Earliest;
        let join = Command::Join { member, start, max_attempts, reply };
        gateway.send(join, store, now);
        let (reply, _) = oneshot::channel();
        gateway.send(Command::SetPaused { member: id, paused: false, reply }, store, now);
        let mut consumer = Self { id, queue, max_in_flight, held: vec![], joined };
        consumer.joined.try_recv().expect("a join is answered at once").ok()?;
        Some(consumer)
    }

    /// Takes everything from the queue.
    pub(super) fn take(&self) -> Vec<Delivery> {
        let mut taken = Vec::new();
        self.queue.take(usize::MAX, &mut taken);
        taken
    }
}

/// An acknowledgement that was sent, and the events it is for.
pub(super) struct SentAck {
    pub(super) member: MemberId,
    deliveries: Vec<Delivery>,
    answer: oneshot::Receiver<Result<Acked, Refusal>>,
}

/// The answer to an acknowledgement.
pub(super) enum AckAnswer {
    /// These events were acknowledged.
    Acked(Vec<u64>),
    /// Nothing was stored: these deliveries may be acknowledged again.
    Refused(Vec<Delivery>),
}

impl SentAck {
    pub(super) fn send(
        member: MemberId,
        deliveries: Vec<Delivery>,
        publishes: bool,
        gateway: &mut Gateway,
        store: &mut Store,
        now: Instant,
    ) -> Self {
        let (reply, answer) = oneshot::channel();
        let ids = deliveries.iter().map(|delivery| delivery.event.id.clone()).collect();
        let publish = publishes.then(|| {
            gateway.acks_published += 1;
            let (number, try_number) = (gateway.number, gateway.acks_published);
            let publish = |delivery: &Delivery| {
                published_with(delivery.event.seq.0, &format!("{number}-{try_number}"))
            };
            PublishBatch::of_events(deliveries.iter().map(publish).collect())
        });
        let charges = Charges::default();
        let ack = Command::Ack { member, ids, mark_until: None, publish, charges, reply };
        gateway.send(ack, store, now);
        Self { member, deliveries, answer }
    }

    /// Returns the answer once it is there.
    pub(super) fn answer(&mut self) -> Option<AckAnswer> {
        match self.answer.try_recv() {
            Ok(Ok(acked)) => {
                let fresh = self.deliveries.iter().enumerate();
                let fresh = fresh.filter(|(index, _)| !acked.stale.contains(index));
                Some(AckAnswer::Acked(fresh.map(|(_, delivery)| delivery.event.seq.0).collect()))
            }
            Ok(Err(_)) => Some(AckAnswer::Refused(std::mem::take(&mut self.deliveries))),
            Err(oneshot::error::TryRecvError::Closed) => Some(AckAnswer::Acked(vec![])),
            Err(oneshot::error::TryRecvError::Empty) => None,
        }
    }
}

impl Consumer {
    /// Keeps deliveries whose acknowledgement was refused, to acknowledge them again, unless they have
    /// been redelivered.
    pub(super) fn hold_again(&mut self, refused: Vec<Delivery>) {
        for delivery in refused {
            if !self.held.iter().any(|held| held.event.seq == delivery.event.seq) {
                self.held.push(delivery);
            }
        }
    }
}

/// An event that is published with the acknowledgement of `seq`. Its id differs from one try to the next.
fn published_with(seq: u64, try_name: &str) -> EncodedEvent {
    let id = EventId::new(&format!("p{seq}-{try_name}")).unwrap();
    let event = NewEvent::of(Payload::of(&seq).unwrap());
    event.complete(Topic::new("invoices").unwrap(), || id, Timestamp(1)).into_encoded()
}

fn published_for(id: &EventId) -> u64 {
    let id = id.to_string();
    id.strip_prefix('p').unwrap().split('-').next().unwrap().parse().unwrap()
}

fn event(seq: u64) -> crate::topics::FeedEvent {
    let (id, ts, key) = (event_id(seq), Timestamp(seq), None);
    StoredEvent { seq: Seq(seq), ts, id, key, json: "{}".into() }.into()
}

fn take_one(count: &mut u32) -> bool {
    let is_left = *count > 0;
    *count = count.saturating_sub(1);
    is_left
}

const fn unavailable() -> Unavailable {
    Unavailable::Injected("simulated")
}
