//! The lease table of a group: which events are leased, backing off, or done out of order.
//!
//! A pure state machine: time is an argument, and nothing waits. It keeps one slot for every event from
//! the oldest unfinished one to the newest ever delivered, so every operation except
//! [`Leases::expire_due_leases`] takes constant time however many events are in flight.

mod adopting;
mod ending;
mod reopened;
mod slot;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use prombus_proto::{EventId, Seq, Timestamp};

pub(crate) use self::ending::{AfterLease, EndedLease, LeaseEnd};
pub(crate) use self::reopened::MAX_REOPENED;
use self::reopened::{Reopened, Unreadable};
use self::slot::Identity;
pub(crate) use self::slot::{Lease, Slot, SlotState};
use crate::groups::retry::RetryRules;
use crate::stored::cursor::{Attempts, Cursor, Progress, RetryTime};
use crate::time::Moment;

/// How far a group runs ahead of its oldest unfinished event. Bounds its memory and its stored cursor.
pub const MAX_WINDOW: usize = 65_536;

/// The longest lease or back-off, so that no duration a client asks for overflows an `Instant`.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A member of a group: one subscription of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u64);

#[derive(Debug)]
pub(crate) struct Leases {
    floor: Seq,
    at_floor: Option<Identity>,
    created: Timestamp,
    /// The events above the floor.
    window: VecDeque<Slot>,
    /// Events below the floor, or done above it, that are delivered again.
    reopened: BTreeMap<Seq, Reopened>,
    /// Redriven events that the log delivers, because the group has not finished them, and their letters.
    in_log: BTreeMap<Seq, Seq>,
    unreadable: Vec<Unreadable>,
    /// Randomly seeded, but faster than the default hasher: each event is looked up three times.
    leased: HashMap<EventId, Seq, foldhash::fast::RandomState>,
    rules: RetryRules,
    /// Events to redeliver now, in any company.
    redeliverable: BTreeSet<Seq>,
    /// Events to redeliver now, each to a member that has nothing else in flight: so many connections were
    /// lost while they were in flight that they may be the cause.
    suspects: BTreeSet<Seq>,
    /// Events to redeliver once the cursor that counts their last attempt is stored.
    unrecorded: BTreeSet<Seq>,
    newest_generation: CursorGeneration,
    stored_generation: CursorGeneration,
    /// No slot's deadline or back-off ends before this.
    next_timer: Option<Instant>,
    /// The owners of leases that ended because retention removed their events.
    trimmed: Vec<MemberId>,
}

/// Numbers the cursors that this process makes for a group, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CursorGeneration(u64);

impl CursorGeneration {
    /// The cursor that was stored when the group was loaded.
    const STORED: Self = Self(0);

    const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Leases {
    /// Resumes behind `cursor`, which was read at `read_at`.
    pub(crate) fn resume(cursor: &Cursor, rules: RetryRules, read_at: Moment) -> Self {
        let window: VecDeque<_> = cursor
            .above()
            .take(MAX_WINDOW)
            .map(|progress| match progress {
                Progress::Done => Slot::stored(Attempts::default(), SlotState::Done),
                Progress::Tried(attempts) => Slot::stored(attempts, SlotState::Redeliverable),
                Progress::BackingOff(attempts, retry) => {
                    let until = read_at.instant + retry.wait_from(read_at.timestamp).min(MAX_LEASE);
                    Slot::stored(attempts, SlotState::BackingOff(until))
                }
            })
            .map(|slot| Slot {
                first_delivered: (slot.attempts.deliveries > 0).then_some(read_at.instant),
                ..slot
            })
            .collect();
        let back_offs = window.iter().filter_map(|slot| match slot.state {
            SlotState::BackingOff(until) => Some(until),
            _ => None,
        });
        let next_timer = back_offs.min();
        let mut leases = Self {
            floor: cursor.floor,
            at_floor: cursor.last_id.clone().zip(cursor.last_ts),
            created: cursor.created,
            rules,
            redeliverable: BTreeSet::new(),
            suspects: BTreeSet::new(),
            unrecorded: BTreeSet::new(),
            newest_generation: CursorGeneration::STORED,
            stored_generation: CursorGeneration::STORED,
            window,
            reopened: BTreeMap::new(),
            in_log: BTreeMap::new(),
            unreadable: Vec::new(),
            leased: HashMap::default(),
            next_timer,
            trimmed: Vec::new(),
        };
        let redeliverable: Vec<_> =
            leases.seqs_where(|state| state == SlotState::Redeliverable).collect();
        redeliverable.into_iter().for_each(|seq| leases.offer_redelivery(seq));
        leases.raise_floor();
        leases
    }

    /// Returns the cursor to be stored at `now`, which counts everything being acknowledged or dead-lettered
    /// as done.
    pub(crate) fn cursor(&self, now: Moment) -> Cursor {
        let passed = self.window.iter().take_while(|slot| slot.state.counts_as_done()).count();
        let newest = passed.checked_sub(1).and_then(|last| self.window[last].identity.as_ref());
        let at_floor = if passed == 0 { self.at_floor.as_ref() } else { newest };
        let mut cursor = Cursor::starting_behind(self.floor.plus(passed as u64), self.created);
        cursor.last_id = at_floor.map(|(id, _)| id.clone());
        cursor.last_ts = at_floor.map(|(_, ts)| *ts);
        cursor.with_above(self.window.range(passed..).map(|slot| match slot.state {
            state if state.counts_as_done() => Progress::Done,
            SlotState::BackingOff(until) if until > now.instant => {
                let retry = RetryTime::after(until - now.instant, now.timestamp);
                Progress::BackingOff(slot.attempts, retry)
            }
            _ => Progress::Tried(slot.attempts),
        }))
    }

    /// Numbers the cursor that is about to be stored.
    pub(crate) const fn begin_generation(&mut self) -> CursorGeneration {
        self.newest_generation = self.newest_generation.next();
        self.newest_generation
    }

    /// Records that the cursor `generation` is stored, which releases the redeliveries that waited for
    /// it. Without that wait, a crash could forget two attempts at once and `attempt` would go back.
    pub(crate) fn generation_stored(&mut self, generation: CursorGeneration) {
        self.stored_generation = generation;
        self.forget_unreadable();
        for seq in std::mem::take(&mut self.unrecorded) {
            self.offer_redelivery(seq);
        }
    }

    /// Makes `seq` redeliverable as soon as its last attempt is recorded.
    fn offer_redelivery(&mut self, seq: Seq) {
        let Some(slot) = self.slot(seq) else { return };
        if slot.recorded_by > self.stored_generation {
            self.unrecorded.insert(seq);
        } else if u32::from(slot.attempts.disconnects) >= self.rules.max_attempts {
            self.suspects.insert(seq);
        } else {
            self.redeliverable.insert(seq);
        }
    }

    /// Changes the number of failures until an event becomes a dead letter. Events that have failed more
    /// often are delivered once more.
    pub(crate) fn set_max_attempts(&mut self, max_attempts: u32) {
        if self.rules.max_attempts == max_attempts {
            return;
        }
        self.rules.max_attempts = max_attempts;
        let suspects = std::mem::take(&mut self.suspects);
        let others = std::mem::take(&mut self.redeliverable);
        suspects.into_iter().chain(others).for_each(|seq| self.offer_redelivery(seq));
    }

    /// `seq` is not to be redelivered any more.
    fn withdraw_redelivery(&mut self, seq: Seq) {
        self.redeliverable.remove(&seq);
        self.suspects.remove(&seq);
        self.unrecorded.remove(&seq);
    }

    /// Every event up to and including this one is done.
    pub(crate) const fn floor(&self) -> Seq {
        self.floor
    }

    /// The first event that was never delivered.
    pub(crate) fn next_new(&self) -> Seq {
        self.floor.plus(self.window.len() as u64 + 1)
    }

    /// Returns `true` if another new event fits into the window.
    pub(crate) fn has_room(&self) -> bool {
        self.window.len() < MAX_WINDOW
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.leased.len()
    }

    /// When the oldest unfinished event was first delivered, if it was.
    pub(crate) fn oldest_unacked(&self) -> Option<Instant> {
        let redriven = self.reopened.values().filter_map(|event| event.slot.first_delivered);
        let oldest = self.window.front().and_then(|slot| slot.first_delivered);
        redriven.chain(oldest).min()
    }

    /// The oldest unfinished event that was delivered before.
    pub(crate) fn oldest_open(&self) -> Option<(Seq, &Slot)> {
        let redriven = self.reopened.first_key_value().map(|(seq, event)| (*seq, &event.slot));
        let in_window = self.window.front().map(|slot| (self.floor.next(), slot));
        redriven.into_iter().chain(in_window).min_by_key(|(seq, _)| *seq)
    }

    /// Returns `true` if `seq` waits for a member that has nothing else in flight.
    pub(crate) fn is_suspect(&self, seq: Seq) -> bool {
        self.suspects.contains(&seq)
    }

    /// The oldest event to redeliver now in any company.
    pub(crate) fn first_redelivery(&self) -> Option<Seq> {
        self.redeliverable.first().copied()
    }

    /// The oldest event to redeliver now to a member that has nothing else in flight.
    pub(crate) fn first_suspect(&self) -> Option<Seq> {
        self.suspects.first().copied()
    }

    /// Returns `true` if a redelivery waits for its last attempt to be recorded.
    pub(crate) fn awaits_record(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    pub(crate) fn is_redeliverable(&self, seq: Seq) -> bool {
        self.redeliverable.contains(&seq) || self.suspects.contains(&seq)
    }

    /// How often `seq` was delivered so far.
    pub(crate) fn deliveries(&self, seq: Seq) -> u32 {
        self.attempts(seq).deliveries
    }

    pub(crate) fn attempts(&self, seq: Seq) -> Attempts {
        self.slot(seq).map_or_else(Attempts::default, |slot| slot.attempts)
    }

    /// Leases `seq`, which is the next new event or redeliverable. Returns the number of the attempt.
    pub(crate) fn lease(&mut self, seq: Seq, id: &EventId, ts: Timestamp, lease: Lease) -> u32 {
        if seq == self.next_new() {
            self.window.push_back(Slot::stored(Attempts::default(), SlotState::Redeliverable));
        }
        if !self.redeliverable.remove(&seq) {
            self.suspects.remove(&seq);
        }
        let recorded_by = self.newest_generation.next();
        let slot = self.slot_mut(seq).expect("only new and redeliverable events are leased");
        debug_assert_eq!(slot.state, SlotState::Redeliverable);
        slot.identity = Some((id.clone(), ts));
        slot.attempts.deliveries += 1;
        slot.first_delivered.get_or_insert(lease.leased_at);
        slot.recorded_by = recorded_by;
        slot.state = SlotState::Leased(lease);
        let attempt = slot.attempts.deliveries;
        self.leased.insert(id.clone(), seq);
        self.set_timer(lease.deadline);
        attempt
    }

    /// Returns the position of `id` if it is leased to `member`.
    pub(crate) fn leased_to(&self, member: MemberId, id: &EventId) -> Option<Seq> {
        let seq = *self.leased.get(id)?;
        let state = self.slot(seq)?.state;
        matches!(state, SlotState::Leased(lease) if lease.member == member).then_some(seq)
    }

    /// Acknowledges `seq`, which is done once that is stored. Returns its lease.
    pub(crate) fn begin_ack(&mut self, seq: Seq) -> Option<Lease> {
        let slot = self.slot_mut(seq)?;
        let SlotState::Leased(lease) = slot.state else { return None };
        slot.state = SlotState::Acknowledging(lease);
        self.forget_id(seq);
        Some(lease)
    }

    /// Finishes `seq`, whose acknowledgement or dead letter is stored.
    pub(crate) fn finish(&mut self, seq: Seq) {
        self.withdraw_redelivery(seq);
        if self.reopened.remove(&seq).is_some() {
            return;
        }
        self.in_log.remove(&seq);
        if let Some(slot) = self.slot_mut(seq) {
            slot.state = SlotState::Done;
        }
        self.raise_floor();
    }

    /// Restores the lease of `seq`, whose acknowledgement could not be stored. Returns its member.
    pub(crate) fn undo_ack(&mut self, seq: Seq) -> Option<MemberId> {
        let slot = self.slot_mut(seq)?;
        let SlotState::Acknowledging(lease) = slot.state else { return None };
        slot.state = SlotState::Leased(lease);
        let id = slot.identity.as_ref().map(|(id, _)| id.clone())?;
        self.leased.insert(id, seq);
        self.set_timer(lease.deadline);
        Some(lease.member)
    }

    /// Moves the deadline of `seq`.
    pub(crate) fn extend(&mut self, seq: Seq, deadline: Instant) {
        if let Some(slot) = self.slot_mut(seq)
            && let SlotState::Leased(lease) = &mut slot.state
        {
            lease.deadline = deadline;
            self.set_timer(deadline);
        }
    }

    /// Every event that is leased to `member`.
    pub(crate) fn leases_of(&self, member: MemberId) -> Vec<Seq> {
        self.seqs_where(|state| matches!(state, SlotState::Leased(lease) if lease.member == member))
            .collect()
    }

    /// Returns the leases whose deadline has passed; the caller fails them. Events whose back-off has
    /// ended become redeliverable.
    pub(crate) fn expire_due_leases(&mut self, now: Instant) -> Vec<(Seq, MemberId)> {
        if self.next_timer.is_none_or(|timer| timer > now) {
            return Vec::new();
        }
        self.next_timer = None;
        let mut expired = Vec::new();
        let reopened = &self.reopened;
        let in_window = (0..self.window.len()).map(|index| self.seq_at(index));
        let in_window = in_window.filter(|seq| !reopened.contains_key(seq));
        let seqs: Vec<_> = reopened.keys().copied().chain(in_window).collect();
        for seq in seqs {
            expired.extend(self.expire_if_due(seq, now));
        }
        expired
    }

    /// Returns the lease of `seq` if its deadline has passed.
    fn expire_if_due(&mut self, seq: Seq, now: Instant) -> Option<(Seq, MemberId)> {
        match self.slot(seq)?.state {
            SlotState::Leased(lease) if lease.deadline <= now => return Some((seq, lease.member)),
            SlotState::Leased(lease) => self.set_timer(lease.deadline),
            SlotState::BackingOff(until) if until <= now => {
                self.slot_mut(seq)?.state = SlotState::Redeliverable;
                self.offer_redelivery(seq);
            }
            SlotState::BackingOff(until) => self.set_timer(until),
            _ => {}
        }
        None
    }

    /// When to call [`Leases::expire_due_leases`] next.
    pub(crate) const fn next_timer(&self) -> Option<Instant> {
        self.next_timer
    }

    /// Counts the events up to `last`, which come next and cannot be read, as done, as far as the window
    /// has room for them.
    pub(crate) fn skip_unreadable(&mut self, last: Seq) {
        while self.next_new() <= last && self.has_room() {
            self.window.push_back(Slot::stored(Attempts::default(), SlotState::Done));
            self.raise_floor();
        }
        self.reopen_lost(last.min(self.next_new().previous()));
    }

    /// Counts everything below `first`, which retention has removed, as done, leased or not.
    pub(crate) fn trim_below(&mut self, first: Seq) {
        while self.floor.next() < first {
            if let Some(slot) = self.window.pop_front() {
                if let SlotState::Leased(lease) = slot.state {
                    self.trimmed.push(lease.member);
                    if let Some((id, _)) = &slot.identity {
                        self.forget_leased(id, self.floor.next());
                    }
                }
                if !self.reopened.contains_key(&self.floor.next()) {
                    self.withdraw_redelivery(self.floor.next());
                }
                self.floor = self.floor.next();
            } else {
                self.floor = first.previous();
            }
            self.at_floor = None;
        }
        self.reopen_lost(first.previous());
        self.raise_floor();
    }

    /// Takes the owners of the leases that [`Leases::trim_below`] ended.
    pub(crate) fn take_trimmed(&mut self) -> Vec<MemberId> {
        std::mem::take(&mut self.trimmed)
    }

    fn raise_floor(&mut self) {
        while self.window.front().is_some_and(|slot| slot.state == SlotState::Done) {
            let slot = self.window.pop_front().expect("the front was just seen");
            self.at_floor = slot.identity;
            self.floor = self.floor.next();
        }
    }

    fn set_timer(&mut self, at: Instant) {
        self.next_timer = Some(self.next_timer.map_or(at, |timer| timer.min(at)));
    }

    fn forget_id(&mut self, seq: Seq) {
        if let Some((id, _)) = self.slot(seq).and_then(|slot| slot.identity.clone()) {
            self.forget_leased(&id, seq);
        }
    }

    /// Forgets that `id` is leased as `seq`. A trimmed id may be published again while its old lease
    /// still runs: then the id stands for the newer event.
    fn forget_leased(&mut self, id: &EventId, seq: Seq) {
        if self.leased.get(id) == Some(&seq) {
            self.leased.remove(id);
        }
    }

    fn seqs_where(&self, wanted: impl Fn(SlotState) -> bool) -> impl Iterator<Item = Seq> {
        let redriven = self.reopened.iter().filter(|(_, event)| wanted(event.slot.state));
        let redriven: Vec<_> = redriven.map(|(seq, _)| *seq).collect();
        redriven.into_iter().chain(self.window_seqs_where(wanted))
    }

    fn window_seqs_where(&self, wanted: impl Fn(SlotState) -> bool) -> impl Iterator<Item = Seq> {
        (0..self.window.len())
            .filter(move |index| wanted(self.window[*index].state))
            .map(|index| self.seq_at(index))
    }

    const fn seq_at(&self, index: usize) -> Seq {
        self.floor.plus(index as u64 + 1)
    }

    fn index(&self, seq: Seq) -> Option<usize> {
        usize::try_from(seq.0.checked_sub(self.floor.0 + 1)?).ok()
    }

    fn slot(&self, seq: Seq) -> Option<&Slot> {
        match self.reopened.get(&seq) {
            Some(event) => Some(&event.slot),
            None => self.window.get(self.index(seq)?),
        }
    }

    fn slot_mut(&mut self, seq: Seq) -> Option<&mut Slot> {
        let (index, next) = (self.index(seq), self.newest_generation.next());
        match self.reopened.get_mut(&seq) {
            Some(event) => {
                event.changed_in = next;
                Some(&mut event.slot)
            }
            None => self.window.get_mut(index?),
        }
    }
}

#[cfg(test)]
mod tests;
