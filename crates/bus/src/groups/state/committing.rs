//! How a group stores its progress: one commit at a time, with everything that gathered meanwhile.

use std::time::{Duration, Instant};

use prombus_engine::{CommitError, StateOp};
use prombus_proto::{EncodedEvent, Seq};

use super::effect::Effect;
use super::pending::{CommitDraft, CommitInFlight, DeadLetterPending, FailedCommit};
use super::{Conditions, GroupState};
use crate::error::Refusal;
use crate::groups::leases::LeaseEnd;
use crate::publish::{CommitReceipt, CommitResult, PublishTimes, Submission};
use crate::spans::{DeliveryEnd, PublishSpans};

/// How many dead letters go into one commit.
const MAX_DEAD_LETTERS: usize = 100;

impl GroupState {
    /// Returns the effect that takes the next commit further: [`Effect::Commit`] itself, or one that has
    /// to come before it.
    pub(super) fn begin_commit(&mut self, conditions: &Conditions) -> Option<Effect> {
        if self.partition.retry_at.is_some() {
            return None;
        }
        let is_unclear = self.partition.ownership.is_unclear();
        let owned = self.owned_mut()?;
        if owned.commit.is_some() || owned.pending.is_empty() {
            return None;
        }
        if is_unclear {
            return Some(Effect::ReadCursor(None));
        }
        if owned.pending.dead_letters.is_empty() {
            return self.commit_with(Vec::new(), Vec::new(), conditions);
        }
        // Letters for events that the cursor has passed already come first: they go with this cursor.
        owned.pending.dead_letters.sort_by_key(|letter| letter.seq.is_some());
        let count = owned.pending.dead_letters.len().min(MAX_DEAD_LETTERS);
        let letters = owned.pending.dead_letters.drain(..count).collect();
        Some(Effect::EncodeDeadLetters(letters))
    }

    /// Continues after [`Effect::EncodeDeadLetters`]: commits the first letters, as many as were encoded.
    pub(in crate::groups) fn dead_letters_encoded(
        &mut self,
        mut letters: Vec<DeadLetterPending>,
        encoded: Result<Vec<EncodedEvent>, Refusal>,
        conditions: &Conditions,
    ) {
        let Some(owned) = self.owned_mut() else { return };
        match encoded {
            Ok(encoded) => {
                let left_over = letters.split_off(encoded.len());
                owned.pending.dead_letters.splice(..0, left_over);
                let commit = self.commit_with(letters, encoded, conditions);
                self.effects.extend(commit);
            }
            Err(refusal) => {
                owned.pending.dead_letters.splice(..0, letters);
                self.fail_pending("read the originals of dead letters", &refusal, conditions.now);
            }
        }
    }

    /// Makes everything pending one commit, together with the `encoded` dead letters.
    fn commit_with(
        &mut self,
        letters: Vec<DeadLetterPending>,
        encoded: Vec<EncodedEvent>,
        conditions: &Conditions,
    ) -> Option<Effect> {
        let (epoch, expect) =
            (self.partition.ownership.epoch(), self.partition.ownership.expected_cursor());
        let owned = self.partition.ownership.owned_mut()?;
        let later = std::mem::take(&mut owned.pending.dead_letters);
        let mut pending = std::mem::take(&mut owned.pending);
        owned.pending.dead_letters = later;
        pending.dead_letters = letters;
        for seq in pending.dead_letters.iter().filter_map(|letter| letter.seq) {
            owned.leases.begin_dead_letter(seq);
        }
        let durability = pending.durability(conditions.durability);
        let CommitDraft { acks, mut publish, marks, waiters, dead_letters, .. } = pending;
        let mut cursor = owned.leases.cursor(conditions.moment());
        cursor.epoch = epoch;
        let redrives = owned.leases.redrive_changes(conditions.moment());
        let generation = owned.leases.begin_generation();
        let mut publish_times = PublishTimes::of(conditions.now, encoded.len());
        publish_times.append(publish.publish_times);
        let published = publish
            .events
            .iter()
            .map(|event| (event.topic().clone(), event.id().clone()))
            .collect();
        let mut events = encoded;
        let mut spans = PublishSpans::none();
        spans.append(publish.spans, events.len());
        events.append(&mut publish.events);
        let mut state = marks.into_state();
        state.extend(redrives.into_iter().map(|change| self.name.redrive_change(change)));
        state.push(StateOp::Put {
            key: self.name.cursor_key.clone(),
            value: cursor.encode().into(),
            expires_at: None,
            expect,
        });
        owned.commit = Some(CommitInFlight { generation, acks, waiters, published, dead_letters });
        let (charges, permits) = (publish.charges, publish.permits);
        let submission = Submission {
            events,
            publish_times,
            spans,
            charges,
            permits,
            ..Submission::of_state(state, durability)
        };
        Some(Effect::Commit(submission))
    }

    /// Takes the answer to [`Effect::Commit`].
    pub(in crate::groups) fn committed(&mut self, answer: CommitResult, now: Instant) {
        let Some(owned) = self.owned_mut() else { return };
        let Some(commit) = owned.commit.take() else { return };
        match answer {
            Ok(stored) => self.commit_stored(commit, stored, now),
            Err(error) => self.commit_failed(commit, error, now),
        }
    }

    fn commit_stored(&mut self, commit: CommitInFlight, stored: CommitReceipt, now: Instant) {
        self.partition.ownership.cursor_stored(stored.version);
        let Some(owned) = self.partition.ownership.owned_mut() else { return };
        owned.leases.generation_stored(commit.generation);
        let acked = commit.acks.iter().map(|(seq, _)| *seq);
        for seq in acked.clone() {
            let delivery = (&self.name.group, seq);
            owned.spans.end(self.tracer.as_ref(), delivery, DeliveryEnd::Acked, now);
        }
        for seq in acked.chain(commit.dead_letters.iter().filter_map(|letter| letter.seq)) {
            owned.finish(seq);
        }
        if !commit.acks.is_empty() {
            self.series.acked(commit.acks.iter().map(|(_, after)| *after));
        }
        self.dead_lettered(&commit.dead_letters);
        let mut published = stored.positions.into_iter().skip(commit.dead_letters.len());
        commit.waiters.into_iter().for_each(|waiter| waiter.stored(&mut published));
    }

    fn commit_failed(&mut self, commit: CommitInFlight, error: CommitError, now: Instant) {
        let CommitInFlight { acks, waiters, published, dead_letters, .. } = commit;
        self.undo(&acks, dead_letters, now);
        let is_conflict = matches!(error, CommitError::Conflict(_));
        if !is_conflict {
            self.storage_failed("store the cursor", &error, now);
        }
        // On a shared store a conflict means that the stored cursor is not the expected one: a commit that
        // was reported as failed is stored, or another gateway owns the group.
        let has_epoch = self.partition.ownership.epoch().is_some();
        if matches!(error, CommitError::Unavailable(_)) || is_conflict && has_epoch {
            self.partition.ownership.commit_unclear();
            let failed = FailedCommit { acks, waiters, published, error };
            self.effects.push_back(Effect::ReadCursor(Some(Box::new(failed))));
            return;
        }
        let refusal = Refusal::from(error);
        waiters.into_iter().for_each(|waiter| waiter.refused(refusal.clone()));
    }

    /// Gives up on the pending commit, which could not be submitted, until the storage is tried again.
    pub(super) fn fail_pending(&mut self, what: &str, refusal: &Refusal, now: Instant) {
        self.storage_failed(what, refusal, now);
        let Some(owned) = self.owned_mut() else { return };
        let pending = std::mem::take(&mut owned.pending);
        self.undo(&pending.acks, pending.dead_letters, now);
        pending.waiters.into_iter().for_each(|waiter| waiter.refused(refusal.clone()));
    }

    /// Restores the leases whose end could not be stored.
    pub(super) fn undo(
        &mut self,
        acks: &[(Seq, Duration)],
        dead_letters: Vec<DeadLetterPending>,
        now: Instant,
    ) {
        let Some(owned) = self.partition.ownership.owned_mut() else { return };
        for (seq, _) in acks {
            let Some(id) = owned.leases.undo_ack(*seq) else { continue };
            match self.members.get_mut(id) {
                Some(member) => member.in_flight += 1,
                // The member has left meanwhile: nobody can acknowledge it any more.
                None => drop(owned.leases.end(*seq, LeaseEnd::Released, now)),
            }
        }
        for seq in dead_letters.iter().filter_map(|letter| letter.seq) {
            owned.leases.undo_dead_letter(seq);
        }
        owned.pending.dead_letters.extend(dead_letters);
        owned.pending.cursor_changed = true;
    }
}
