//! Events that the group is done with and delivers again, because their dead letters were redriven.
//!
//! The cursor says nothing of them: each has a record of its own, which the commits of the group change along with the
//! cursor.

use std::collections::HashSet;
use std::time::Duration;

use prombus_proto::Seq;

use super::slot::{Slot, SlotState};
use super::{CursorGeneration, Leases, MAX_LEASE};
use crate::stored::cursor::{Attempts, RetryTime};
use crate::stored::redrive::Redrive;
use crate::time::Moment;

/// How many redriven events a group works on at a time. Bounds its memory.
pub(crate) const MAX_REOPENED: usize = 1000;

#[derive(Debug)]
pub(super) struct Reopened {
    pub(super) slot: Slot,
    /// The position of its dead letter.
    letter: Seq,
    /// The first commit that stores it as it is now.
    pub(super) changed_in: CursorGeneration,
}

/// The record of an event that cannot be read any more, which the next commit removes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreadable {
    seq: Seq,
    removed_in: CursorGeneration,
}

impl Leases {
    /// Delivers `seq` again, as its stored record says, which was read at `read_at`. An event that the group has not
    /// finished is delivered by the log anyway, unless retention is faster.
    pub(crate) fn reopen(&mut self, seq: Seq, redrive: Redrive, read_at: Moment) {
        if self.reopened.contains_key(&seq) {
            return;
        }
        let is_done =
            seq <= self.floor || self.slot(seq).is_some_and(|slot| slot.state == SlotState::Done);
        if !is_done {
            self.in_log.insert(seq, redrive.letter);
            return;
        }
        self.in_log.remove(&seq);
        let wait = redrive.retry.map(|retry| retry.wait_from(read_at.timestamp).min(MAX_LEASE));
        let state = match wait {
            Some(wait) if wait > Duration::ZERO => SlotState::BackingOff(read_at.instant + wait),
            _ => SlotState::Redeliverable,
        };
        let mut slot = Slot::stored(redrive.attempts, state);
        slot.first_delivered = (redrive.attempts.deliveries > 0).then_some(read_at.instant);
        let changed_in = CursorGeneration::STORED;
        self.reopened.insert(seq, Reopened { slot, letter: redrive.letter, changed_in });
        match state {
            SlotState::BackingOff(until) => self.set_timer(until),
            _ => self.offer_redelivery(seq),
        }
    }

    /// Delivers redriven events from their letters that the log was to deliver, and has lost up to `last`.
    pub(super) fn reopen_lost(&mut self, last: Seq) {
        let lost: Vec<_> = self.in_log.extract_if(..=last, |_, _| true).collect();
        for (seq, letter) in lost {
            let slot = Slot::stored(Attempts::default(), SlotState::Redeliverable);
            let changed_in = CursorGeneration::STORED;
            self.reopened.insert(seq, Reopened { slot, letter, changed_in });
            self.offer_redelivery(seq);
        }
    }

    /// Returns what the next commit stores of redriven events: `None` for one whose record is removed.
    pub(crate) fn redrive_changes(&self, now: Moment) -> Vec<(Seq, Option<Redrive>)> {
        let changed = self.reopened.iter().filter(|(_, event)| {
            event.changed_in > self.stored_generation || event.slot.state.counts_as_done()
        });
        let changed = changed.map(|(seq, event)| (*seq, event.record(now)));
        let finished = self.in_log.keys().filter(|seq| {
            **seq <= self.floor || self.slot(**seq).is_some_and(|slot| slot.state.counts_as_done())
        });
        let unreadable = self.unreadable.iter().map(|record| record.seq);
        let removed = finished.copied().chain(unreadable).map(|seq| (seq, None));
        changed.chain(removed).collect()
    }

    /// Gives up on a redriven event that cannot be read any more: the next commit removes its record.
    pub(crate) fn give_up_redrive(&mut self, seq: Seq) {
        if self.reopened.remove(&seq).is_some() {
            self.withdraw_redelivery(seq);
            let removed_in = self.newest_generation.next();
            self.unreadable.push(Unreadable { seq, removed_in });
        }
    }

    pub(super) fn forget_unreadable(&mut self) {
        let stored = self.stored_generation;
        self.unreadable.retain(|record| record.removed_in > stored);
    }

    /// The position of the dead letter of a redriven event.
    pub(crate) fn letter_of(&self, seq: Seq) -> Option<Seq> {
        Some(self.reopened.get(&seq)?.letter)
    }

    /// How many more redriven events there is room for.
    pub(crate) fn room_for_redrives(&self) -> usize {
        MAX_REOPENED.saturating_sub(self.reopened.len() + self.in_log.len())
    }

    /// The redriven events whose records are not among `stored`, so that a commit has removed them. A record with another
    /// letter is a later one.
    pub(super) fn redrives_done_in_store(&self, stored: &[(Seq, Redrive)]) -> Vec<Seq> {
        let stored: HashSet<_> =
            stored.iter().map(|(seq, redrive)| (*seq, redrive.letter)).collect();
        let done =
            self.reopened.iter().filter(|(seq, event)| !stored.contains(&(**seq, event.letter)));
        done.map(|(seq, _)| *seq).collect()
    }
}

impl Reopened {
    fn record(&self, now: Moment) -> Option<Redrive> {
        let retry = match self.slot.state {
            state if state.counts_as_done() => return None,
            SlotState::BackingOff(until) if until > now.instant => {
                Some(RetryTime::after(until - now.instant, now.timestamp))
            }
            _ => None,
        };
        Some(Redrive { letter: self.letter, attempts: self.slot.attempts, retry })
    }
}
