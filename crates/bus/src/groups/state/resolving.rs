//! What follows when a commit was reported as failed and the stored cursor has been read: what the cursor
//! counts as done is done, whatever was reported.

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use prombus_engine::CommitError;
use prombus_proto::{ErrorCode, EventId, Seq, Topic};

use super::GroupState;
use super::commands::lease_lost;
use super::effect::{Effect, StoredProgress};
use super::pending::{Ack, FailedCommit, StoredAck, Waiter};
use crate::error::Refusal;
use crate::groups::command::Acked;

/// The events that turned out to be done when the stored cursor was read.
#[derive(Default)]
struct AdoptedEvents {
    seqs: BTreeSet<Seq>,
    ids: HashSet<EventId>,
}

impl AdoptedEvents {
    /// Returns `true` if everything that `ack` acknowledged, except for the `stale` ids, is among them.
    fn contain_all(&self, ack: &Ack, stale: &[usize]) -> bool {
        let mut fresh = ack.ids.iter().enumerate().filter(|(index, _)| !stale.contains(index));
        stale.len() < ack.ids.len() && fresh.all(|(_, id)| self.ids.contains(id))
    }
}

impl GroupState {
    /// Finishes what is `stored` as done, and answers the waiters of a commit that was
    /// reported as failed.
    pub(super) fn resolve(
        &mut self,
        failed: Option<Box<FailedCommit>>,
        stored: &StoredProgress,
        now: Instant,
    ) {
        let adopted = self.adopt_done(stored);
        let pending =
            if adopted.seqs.is_empty() { Vec::new() } else { self.take_back_pending(now) };
        if let Some(failed) = failed {
            let FailedCommit { acks, waiters, published, error } = *failed;
            let stored = acks.iter().filter(|(seq, _)| adopted.seqs.contains(seq));
            let mut stored = stored.map(|(_, after)| *after).peekable();
            if stored.peek().is_some() {
                self.series.acked(stored);
            }
            let mut published = published.into_iter();
            for waiter in waiters {
                self.resolve_failed(waiter, &mut published, &adopted, &error, now);
            }
        }
        for waiter in pending {
            self.submit_again(waiter, &adopted, now);
        }
    }

    fn adopt_done(&mut self, stored: &StoredProgress) -> AdoptedEvents {
        let mut adopted = AdoptedEvents::default();
        let Some(owned) = self.partition.ownership.owned_mut() else { return adopted };
        for event in owned.leases.adopt_done(&stored.cursor, &stored.redrives) {
            if let Some(member) = event.member.and_then(|id| self.members.get_mut(id)) {
                member.in_flight -= 1;
                member.withdraw_unsent(&BTreeSet::from([event.seq]));
            }
            // Its next dead letter may have been redriven already.
            owned.has_more_redrives = true;
            adopted.seqs.insert(event.seq);
            adopted.ids.extend(event.id);
        }
        let is_stored = |seq: Option<Seq>| seq.is_some_and(|seq| adopted.seqs.contains(&seq));
        let letters = &mut owned.pending.dead_letters;
        let stored: Vec<_> = letters.extract_if(.., |letter| is_stored(letter.seq)).collect();
        self.dead_lettered(&stored);
        adopted
    }

    /// Restores the leases that the next commit was to end, and returns its waiters.
    fn take_back_pending(&mut self, now: Instant) -> Vec<Waiter> {
        let Some(owned) = self.owned_mut() else { return Vec::new() };
        let pending = std::mem::take(&mut owned.pending);
        self.undo(&pending.acks, pending.dead_letters, now);
        pending.waiters
    }

    /// Answers a waiter of the commit that failed with `error`, or lets it go into the next commit.
    /// `published` are the events that it and the waiters after it publish.
    fn resolve_failed(
        &mut self,
        waiter: Waiter,
        published: &mut impl Iterator<Item = (Topic, EventId)>,
        adopted: &AdoptedEvents,
        error: &CommitError,
        now: Instant,
    ) {
        let is_conflict = matches!(error, CommitError::Conflict(_));
        match waiter {
            Waiter::Ack { ack, stale, published: count } if count > 0 => {
                let published = published.take(count).collect();
                if adopted.contain_all(&ack, &stale) {
                    let stored = StoredAck { ack, stale, published };
                    self.effects.push_back(Effect::AnswerStoredAck(stored));
                } else if is_conflict {
                    ack.answer(Err(not_stored()));
                } else {
                    ack.answer(Err(Refusal::from(error.clone())));
                }
            }
            // Nothing of a commit with a conflict is stored.
            waiter if is_conflict => self.submit_again(waiter, adopted, now),
            Waiter::Ack { ack, stale, .. } if adopted.contain_all(&ack, &stale) => {
                ack.answer(Ok(Acked { stale, published: vec![] }));
            }
            waiter => waiter.refused(Refusal::from(error.clone())),
        }
    }

    /// Lets a command of which nothing is stored go into the next commit, unless its events turned out to
    /// be done.
    fn submit_again(&mut self, waiter: Waiter, adopted: &AdoptedEvents, now: Instant) {
        match waiter {
            Waiter::Ack { ack, published, .. } if published > 0 => {
                let done = ack.ids.iter().find(|id| adopted.ids.contains(id));
                let refusal = done.map_or_else(not_stored, lease_lost);
                ack.answer(Err(refusal));
            }
            Waiter::Ack { ack, stale, .. }
                if ack.mark_until.is_none() && adopted.contain_all(&ack, &stale) =>
            {
                ack.answer(Ok(Acked { stale, published: vec![] }));
            }
            Waiter::Ack { ack, .. } => self.ack(ack, None, now),
            Waiter::Nack { .. } => {
                if let Some(owned) = self.owned_mut() {
                    owned.pending.waiters.push(waiter);
                }
            }
        }
    }
}

fn not_stored() -> Refusal {
    let message = "the cursor had to be read again; nothing was stored, try again";
    Refusal::new(ErrorCode::StorageUnavailable, message)
}
