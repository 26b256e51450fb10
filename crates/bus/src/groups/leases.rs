//! The events a group is busy with: lent, resting after a failure, done out of order.
//!
//! A pure state machine: time comes in as an argument, nothing waits. It keeps one slot for every
//! event from the oldest that is not done to the newest that was ever lent, so that every step but
//! a look at the clock costs the same whatever is out.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use prombus_proto::{EventId, Seq, Timestamp};

use crate::stored::cursor::{Cursor, Progress};

/// How far a group runs ahead of its oldest event that is not done. Bounds its memory and its
/// stored cursor.
pub const MAX_WINDOW: usize = 65_536;

/// No lease and no rest lasts longer, so that no time a client asks for is beyond what clocks hold.
pub(crate) const LONGEST_TIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A member of a group: one subscription of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u64);

#[derive(Debug)]
pub(crate) struct Leases {
    floor: Seq,
    at_floor: Option<Identity>,
    created: Timestamp,
    /// The events behind the floor.
    window: VecDeque<Slot>,
    /// Hashed with a seed of its own, but faster than by default: each event is looked up three times.
    lent: HashMap<EventId, Seq, foldhash::fast::RandomState>,
    /// What is to be lent again, now.
    again: BTreeSet<Seq>,
    /// The same, but for the cursor that tells of the last attempt, which is not stored yet.
    unrecorded: BTreeSet<Seq>,
    /// Which cursor was made last, and which of them is stored.
    last_record: Record,
    stored_record: Record,
    /// No timer of any slot runs out before this.
    next_timer: Option<Instant>,
    /// Whose leases ended because their events are no longer kept.
    forgotten: Vec<MemberId>,
}

type Identity = (EventId, Timestamp);

/// Which of the cursors that a group made one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record(u64);

#[derive(Debug)]
struct Slot {
    /// Unknown until it is lent by this process.
    identity: Option<Identity>,
    /// How often it was delivered.
    attempts: u32,
    /// The first cursor that tells of all of them.
    recorded_by: Record,
    state: State,
}

impl Slot {
    /// One that nothing was done about since the stored cursor.
    const fn new(attempts: u32, state: State) -> Self {
        Self { identity: None, attempts, recorded_by: Record(0), state }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Lent(Lease),
    /// Acknowledged; the cursor that says so is not stored yet.
    Ending(Lease),
    /// Failed, and not to be tried before a certain time.
    Resting(Instant),
    Again,
    /// Out of attempts, and to become a dead letter.
    Dying,
    /// Its dead letter is being stored.
    Burying,
    Done,
}

impl State {
    /// Whether the group is done with it, in the cursor that is stored next.
    const fn counts_as_done(self) -> bool {
        matches!(self, State::Ending(_) | State::Burying | State::Done)
    }
}

/// Who has an event, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) member: MemberId,
    pub(crate) lent_at: Instant,
    pub(crate) deadline: Instant,
}

/// What becomes of an event whose lease ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Again,
    /// It had all its attempts.
    Dying,
}

/// A lease that ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) seq: Seq,
    pub(crate) member: MemberId,
    pub(crate) attempts: u32,
    pub(crate) fate: Fate,
}

impl Leases {
    pub(crate) fn resume(cursor: &Cursor) -> Self {
        let window: VecDeque<_> = cursor
            .above()
            .take(MAX_WINDOW)
            .map(|progress| match progress {
                Progress::Done => Slot::new(0, State::Done),
                Progress::Tried(attempts) => Slot::new(attempts, State::Again),
            })
            .collect();
        let mut leases = Self {
            floor: cursor.floor,
            at_floor: cursor.last_id.clone().zip(cursor.last_ts),
            created: cursor.created,
            again: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            last_record: Record(0),
            stored_record: Record(0),
            window,
            lent: HashMap::default(),
            next_timer: None,
            forgotten: Vec::new(),
        };
        leases.again = (0..leases.window.len())
            .filter(|place| leases.window[*place].state == State::Again)
            .map(|place| leases.seq_at(place))
            .collect();
        leases.raise_floor();
        leases
    }

    /// The cursor as it is once all that is ending or being buried has ended.
    pub(crate) fn cursor(&self) -> Cursor {
        let passed = self.window.iter().take_while(|slot| slot.state.counts_as_done()).count();
        let newest = passed.checked_sub(1).and_then(|last| self.window[last].identity.as_ref());
        let at_floor = if passed == 0 { self.at_floor.as_ref() } else { newest };
        let mut cursor = Cursor::starting_behind(self.floor.plus(passed as u64), self.created);
        cursor.last_id = at_floor.map(|(id, _)| id.clone());
        cursor.last_ts = at_floor.map(|(_, ts)| *ts);
        cursor.with_above(self.window.range(passed..).map(|slot| {
            if slot.state.counts_as_done() {
                Progress::Done
            } else {
                Progress::Tried(slot.attempts)
            }
        }))
    }

    /// The cursor is about to be stored.
    pub(crate) const fn begin_record(&mut self) -> Record {
        self.last_record.0 += 1;
        self.last_record
    }

    /// The cursor is stored. What it tells of may be lent again: an attempt that follows one that
    /// is not recorded could be forgotten together with it, and then it would count backwards.
    pub(crate) fn recorded(&mut self, record: Record) {
        self.stored_record = record;
        for seq in std::mem::take(&mut self.unrecorded) {
            self.offer_again(seq);
        }
    }

    /// `seq` is to be lent again, as soon as its last attempt is recorded.
    fn offer_again(&mut self, seq: Seq) {
        let Some(slot) = self.slot(seq) else { return };
        if slot.recorded_by <= self.stored_record {
            self.again.insert(seq);
        } else {
            self.unrecorded.insert(seq);
        }
    }

    /// All up to here are done.
    pub(crate) const fn floor(&self) -> Seq {
        self.floor
    }

    /// The first event that was never lent.
    pub(crate) fn next_new(&self) -> Seq {
        self.floor.plus(self.window.len() as u64 + 1)
    }

    /// Whether one more event may be lent before older ones are done.
    pub(crate) fn has_room(&self) -> bool {
        self.window.len() < MAX_WINDOW
    }

    /// How many are out.
    pub(crate) fn in_flight(&self) -> usize {
        self.lent.len()
    }

    /// The oldest event that is to be lent again.
    pub(crate) fn first_again(&self) -> Option<Seq> {
        self.again.first().copied()
    }

    /// Whether an event is to be lent again as soon as its last attempt is recorded.
    pub(crate) fn waits_for_record(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    pub(crate) fn is_again(&self, seq: Seq) -> bool {
        self.again.contains(&seq)
    }

    /// How often `seq` was delivered so far.
    pub(crate) fn attempts(&self, seq: Seq) -> u32 {
        self.slot(seq).map_or(0, |slot| slot.attempts)
    }

    /// Lends `seq`, which is the next new one or to be lent again. Answers which attempt it is.
    pub(crate) fn lend(&mut self, seq: Seq, id: &EventId, ts: Timestamp, lease: Lease) -> u32 {
        if seq == self.next_new() {
            self.window.push_back(Slot::new(0, State::Again));
        }
        self.again.remove(&seq);
        let recorded_by = Record(self.last_record.0 + 1);
        let slot = self.slot_mut(seq).expect("only what is next or to be lent again is lent");
        debug_assert_eq!(slot.state, State::Again);
        slot.identity = Some((id.clone(), ts));
        slot.attempts += 1;
        slot.recorded_by = recorded_by;
        slot.state = State::Lent(lease);
        let attempts = slot.attempts;
        self.lent.insert(id.clone(), seq);
        self.set_timer(lease.deadline);
        attempts
    }

    /// Which event `id` is, if `member` has it.
    pub(crate) fn lent_to(&self, member: MemberId, id: &EventId) -> Option<Seq> {
        let seq = *self.lent.get(id)?;
        matches!(self.slot(seq)?.state, State::Lent(lease) if lease.member == member).then_some(seq)
    }

    /// Begins to end the lease of `seq`: it is acknowledged, and done once that is stored. Answers
    /// the lease.
    pub(crate) fn begin_end(&mut self, seq: Seq) -> Option<Lease> {
        let slot = self.slot_mut(seq)?;
        let State::Lent(lease) = slot.state else { return None };
        slot.state = State::Ending(lease);
        self.forget_id(seq);
        Some(lease)
    }

    /// The acknowledgement of `seq` is stored.
    pub(crate) fn end(&mut self, seq: Seq) {
        self.again.remove(&seq);
        self.unrecorded.remove(&seq);
        if let Some(slot) = self.slot_mut(seq) {
            slot.state = State::Done;
        }
        self.raise_floor();
    }

    /// The acknowledgement of `seq` could not be stored: the lease goes on. Answers whose it is.
    pub(crate) fn undo_end(&mut self, seq: Seq) -> Option<MemberId> {
        let slot = self.slot_mut(seq)?;
        let State::Ending(lease) = slot.state else { return None };
        slot.state = State::Lent(lease);
        let id = slot.identity.as_ref().map(|(id, _)| id.clone())?;
        self.lent.insert(id, seq);
        self.set_timer(lease.deadline);
        Some(lease.member)
    }

    /// Ends the lease of `seq` without success. It is lent again after `rest`, unless it had
    /// `max_attempts`.
    pub(crate) fn fail(
        &mut self,
        seq: Seq,
        max_attempts: u32,
        rest: Option<Instant>,
    ) -> Option<Failed> {
        let slot = self.slot_mut(seq)?;
        let State::Lent(lease) = slot.state else { return None };
        let attempts = slot.attempts;
        let fate = if attempts >= max_attempts { Fate::Dying } else { Fate::Again };
        slot.state = match (fate, rest) {
            (Fate::Dying, _) => State::Dying,
            (Fate::Again, Some(until)) => State::Resting(until),
            (Fate::Again, None) => State::Again,
        };
        match slot.state {
            State::Again => self.offer_again(seq),
            State::Resting(until) => self.set_timer(until),
            _ => {}
        }
        self.forget_id(seq);
        Some(Failed { seq, member: lease.member, attempts, fate })
    }

    /// Takes back the delivery `attempt` to `member`, which never left: as if `seq` had not been
    /// lent. Does nothing where that lease has ended, whoever has the event now.
    pub(crate) fn unlend(&mut self, seq: Seq, member: MemberId, attempt: u32) -> bool {
        let Some(slot) = self.slot_mut(seq) else { return false };
        let is_its = matches!(slot.state, State::Lent(lease) if lease.member == member);
        if !is_its || slot.attempts != attempt {
            return false;
        }
        slot.attempts -= 1;
        // Nobody saw the attempt, and those before it were recorded when it began.
        slot.recorded_by = Record(0);
        slot.state = State::Again;
        self.again.insert(seq);
        self.forget_id(seq);
        true
    }

    /// Gives up on an event that waits to be lent again.
    pub(crate) fn condemn(&mut self, seq: Seq) {
        if self.again.remove(&seq)
            && let Some(slot) = self.slot_mut(seq)
        {
            slot.state = State::Dying;
        }
    }

    /// Begins to store the dead letter of `seq`.
    pub(crate) fn begin_burial(&mut self, seq: Seq) {
        if let Some(slot) = self.slot_mut(seq)
            && slot.state == State::Dying
        {
            slot.state = State::Burying;
        }
    }

    /// The dead letter of `seq` could not be stored.
    pub(crate) fn undo_burial(&mut self, seq: Seq) {
        if let Some(slot) = self.slot_mut(seq)
            && slot.state == State::Burying
        {
            slot.state = State::Dying;
        }
    }

    /// Moves the deadline of `seq`.
    pub(crate) fn extend(&mut self, seq: Seq, deadline: Instant) {
        if let Some(slot) = self.slot_mut(seq)
            && let State::Lent(lease) = &mut slot.state
        {
            lease.deadline = deadline;
            self.set_timer(deadline);
        }
    }

    /// All that `member` has.
    pub(crate) fn held_by(&self, member: MemberId) -> Vec<Seq> {
        self.seqs_where(|state| matches!(state, State::Lent(lease) if lease.member == member))
    }

    /// The members whose leases have run out, and what they had; what has rested enough is to be
    /// lent again.
    pub(crate) fn expire_due_leases(&mut self, now: Instant) -> Vec<(Seq, MemberId)> {
        if self.next_timer.is_none_or(|timer| timer > now) {
            return Vec::new();
        }
        self.next_timer = None;
        let mut expired = Vec::new();
        for place in 0..self.window.len() {
            let seq = self.seq_at(place);
            match self.window[place].state {
                State::Lent(lease) if lease.deadline <= now => expired.push((seq, lease.member)),
                State::Lent(lease) => self.set_timer(lease.deadline),
                State::Resting(until) if until <= now => {
                    self.window[place].state = State::Again;
                    self.offer_again(seq);
                }
                State::Resting(until) => self.set_timer(until),
                _ => {}
            }
        }
        expired
    }

    /// When to look at the clock next.
    pub(crate) const fn next_timer(&self) -> Option<Instant> {
        self.next_timer
    }

    /// The events up to `last`, which come next and were never lent, cannot be had: they are done,
    /// as far as there is room for them now.
    pub(crate) fn pass_over(&mut self, last: Seq) {
        while self.next_new() <= last && self.has_room() {
            self.window.push_back(Slot::new(0, State::Done));
            self.raise_floor();
        }
    }

    /// The topic keeps nothing below `first` any more: all of that is done, lent or not.
    pub(crate) fn forget_below(&mut self, first: Seq) {
        while self.floor.next() < first {
            if let Some(slot) = self.window.pop_front() {
                if let State::Lent(lease) = slot.state {
                    self.forgotten.push(lease.member);
                    if let Some((id, _)) = &slot.identity {
                        self.forget_lent(id, self.floor.next());
                    }
                }
                self.again.remove(&self.floor.next());
                self.unrecorded.remove(&self.floor.next());
                self.floor = self.floor.next();
            } else {
                self.floor = first.previous();
            }
            self.at_floor = None;
        }
        self.raise_floor();
    }

    /// Whose leases were forgotten since this was asked last.
    pub(crate) fn take_forgotten(&mut self) -> Vec<MemberId> {
        std::mem::take(&mut self.forgotten)
    }

    fn raise_floor(&mut self) {
        while self.window.front().is_some_and(|slot| slot.state == State::Done) {
            let slot = self.window.pop_front().expect("there is a front");
            self.at_floor = slot.identity;
            self.floor = self.floor.next();
        }
    }

    fn set_timer(&mut self, at: Instant) {
        self.next_timer = Some(self.next_timer.map_or(at, |timer| timer.min(at)));
    }

    fn forget_id(&mut self, seq: Seq) {
        if let Some((id, _)) = self.slot(seq).and_then(|slot| slot.identity.clone()) {
            self.forget_lent(&id, seq);
        }
    }

    /// Forgets that `id` is lent as `seq`. What was trimmed may be published again while it is
    /// still lent: then the id means the newer one.
    fn forget_lent(&mut self, id: &EventId, seq: Seq) {
        if self.lent.get(id) == Some(&seq) {
            self.lent.remove(id);
        }
    }

    fn seqs_where(&self, wanted: impl Fn(State) -> bool) -> Vec<Seq> {
        (0..self.window.len())
            .filter(|place| wanted(self.window[*place].state))
            .map(|place| self.seq_at(place))
            .collect()
    }

    const fn seq_at(&self, place: usize) -> Seq {
        self.floor.plus(place as u64 + 1)
    }

    fn place(&self, seq: Seq) -> Option<usize> {
        usize::try_from(seq.0.checked_sub(self.floor.0 + 1)?).ok()
    }

    fn slot(&self, seq: Seq) -> Option<&Slot> {
        self.window.get(self.place(seq)?)
    }

    fn slot_mut(&mut self, seq: Seq) -> Option<&mut Slot> {
        let place = self.place(seq)?;
        self.window.get_mut(place)
    }
}

/// How long an event rests after its `attempt`th failure: 100 ms, doubled each time, 30 s at most.
pub(crate) fn back_off(attempt: u32) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);
    SHORTEST.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST)
}

#[cfg(test)]
mod tests;
