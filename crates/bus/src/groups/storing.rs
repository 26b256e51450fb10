//! How a group keeps what it has done: one commit at a time, with all that gathered meanwhile.

use std::time::Duration;

use prombus_engine::{CommitError, Expect, ReadError, StateOp, Unavailable};
use prombus_proto::limits::{MAX_BATCH_BYTES, MAX_EVENT_BYTES};
use prombus_proto::{EncodedEvent, Group, Seq, Topic};

use super::actor::{Actor, GroupContext, RETRY_TIME, now};
use super::reading::Fetched;
use super::round::{Dying, Pending, Round};
use crate::error::Refusal;
use crate::groups::dead_letter::DeadLetter;
use crate::publish::PublishTimes;
use crate::publish::{CommitReceipt, CommitResult, Committer, Submission};
use crate::stored::cursor::Cursor;
use crate::topics::TopicInUse;

/// How many dead letters one commit takes.
const DEAD_LETTERS_AT_ONCE: usize = 100;
/// About how many bytes of them: each holds its original, and a commit has its limit.
const DEAD_LETTER_BYTES: usize = 4 << 20;
const _: () = assert!(DEAD_LETTER_BYTES + MAX_EVENT_BYTES < MAX_BATCH_BYTES);

impl Actor {
    pub(super) async fn start_round(&mut self) {
        if self.round.is_some() || self.retry_at.is_some() {
            return;
        }
        let Some(mut pending) = self.take_pending() else { return };
        if self.held.is_some_and(|held| held.cursor.is_none()) {
            // A commit had no clear answer: which cursor does the next one take the place of?
            match self.is_still_held().await {
                Ok(true) => {}
                Ok(false) => return self.answer_without_lease(pending.waiters).await,
                Err(refusal) => {
                    return self.give_up("look who delivers the group", pending, &refusal);
                }
            }
        }
        let Some(work) = self.work.as_mut() else { return };
        // What does not fit waits for the next round.
        // Letters for events that the cursor passes over already come first: they go with it.
        pending.dying.sort_by_key(|dying| dying.seq.is_some());
        let most = pending.dying.len().min(DEAD_LETTERS_AT_ONCE);
        work.pending.dying = pending.dying.split_off(most);
        let durability = pending.durability(self.topic.durability());
        let letters = match dead_letters(
            &self.ctx,
            &self.topic,
            &self.group,
            &self.dead_letters,
            &mut pending.dying,
        )
        .await
        {
            Ok(letters) => letters,
            Err(error) => {
                let what = "read what is to become a dead letter";
                return self.give_up(what, pending, &error.into());
            }
        };
        let work = self.work.as_mut().expect("it was just there");
        let mut left_over = pending.dying.split_off(letters.len());
        left_over.append(&mut work.pending.dying);
        work.pending.dying = left_over;
        for seq in pending.dying.iter().filter_map(|dying| dying.seq) {
            work.leases.begin_burial(seq);
        }
        let mut cursor = work.leases.cursor();
        let record = work.leases.begin_record();
        let mut publish_times = PublishTimes::of(now(), letters.len());
        publish_times.append(pending.publish.publish_times);
        let mut events = letters;
        events.append(&mut pending.publish.events);
        let mut state = pending.marks.into_state();
        cursor.epoch = self.held.map(|held| held.epoch);
        state.push(self.put(&cursor, self.held.map_or(Expect::Any, |held| held.expect())));
        let submission = Submission { events, publish_times, state, durability };
        let committer = self.ctx.committer.clone();
        self.round = Some(Round {
            record,
            answer: Box::pin(submit(committer, submission)),
            ending: pending.ending,
            waiters: pending.waiters,
            dying: pending.dying,
        });
    }

    /// What waits to be stored, if anything does.
    fn take_pending(&mut self) -> Option<Pending> {
        let work = self.work.as_mut().filter(|work| !work.pending.is_empty())?;
        Some(std::mem::take(&mut work.pending))
    }

    /// It is tried again later; who waits is told.
    fn give_up(&mut self, what: &str, pending: Pending, refusal: &Refusal) {
        self.storage_failed(what, refusal);
        self.undo(pending.ending, pending.dying);
        pending.waiters.into_iter().for_each(|waiter| waiter.refused(refusal.clone()));
    }

    pub(super) async fn finish_round(&mut self, answer: CommitResult) {
        let Some(round) = self.round.take() else { return };
        match answer {
            Ok(CommitReceipt { positions, version }) => {
                if let Some(held) = &mut self.held {
                    held.cursor = Some(version);
                }
                let work = self.work.as_mut().expect("a round has work");
                work.leases.recorded(round.record);
                let ended = round.ending.iter().map(|(seq, _)| *seq);
                for seq in ended.chain(round.dying.iter().filter_map(|dying| dying.seq)) {
                    work.leases.end(seq);
                }
                if !round.ending.is_empty() {
                    self.series.acked(round.ending.iter().map(|(_, after)| *after));
                }
                self.series.dead_lettered(round.dying.len());
                let mut published = positions.into_iter().skip(round.dying.len());
                round.waiters.into_iter().for_each(|waiter| waiter.stored(&mut published));
            }
            Err(error) => {
                self.undo(round.ending, round.dying);
                if let Some(held) = &mut self.held {
                    held.cursor = None;
                    if matches!(error, CommitError::Conflict(_)) {
                        return self.cursor_was_another(round.waiters).await;
                    }
                }
                self.storage_failed("store the cursor", &error);
                let refusal = Refusal::from(error);
                round.waiters.into_iter().for_each(|waiter| waiter.refused(refusal.clone()));
            }
        }
    }

    /// Leases whose end could not be stored go on.
    fn undo(&mut self, ending: Vec<(Seq, Duration)>, dying: Vec<Dying>) {
        let Some(work) = self.work.as_mut() else { return };
        for (seq, _) in ending {
            let Some(id) = work.leases.undo_end(seq) else { continue };
            match self.members.get_mut(id) {
                Some(member) => member.in_flight += 1,
                None => {
                    let failed = work.leases.fail(seq, u32::MAX, None);
                    work.failed(failed, "");
                }
            }
        }
        for seq in dying.iter().filter_map(|dying| dying.seq) {
            work.leases.undo_burial(seq);
        }
        work.pending.dying.extend(dying);
        work.pending.changed = true;
    }

    pub(super) fn put(&self, cursor: &Cursor, expect: Expect) -> StateOp {
        StateOp::Put {
            key: self.key.clone(),
            value: cursor.encode().into(),
            expires_at: None,
            expect,
        }
    }

    pub(super) fn storage_failed(&mut self, what: &str, error: &dyn std::fmt::Display) {
        let (topic, group) = (&self.topic.topic, &self.group);
        tracing::error!(%topic, %group, "cannot {what}: {error}; trying again in a second");
        self.retry_at = Some(now() + RETRY_TIME);
    }
}

/// The letters of the first of `dying`, as many as one commit takes and at least one.
///
/// Needs no more than this of a group: its own round is not to be shared between threads.
async fn dead_letters(
    ctx: &GroupContext,
    topic: &TopicInUse,
    group: &Group,
    dead_letters: &Topic,
    dying: &mut [Dying],
) -> Result<Vec<EncodedEvent>, ReadError> {
    let mut letters = Vec::with_capacity(dying.len());
    let mut bytes = 0;
    for dying in dying {
        if bytes >= DEAD_LETTER_BYTES {
            break;
        }
        let original = match dying.seq {
            Some(seq) => Fetched::one(&ctx.engine, topic, seq).await?,
            None => None,
        };
        let letter = DeadLetter {
            topic: &topic.topic,
            group,
            original: original.as_ref(),
            error: &dying.error,
            attempts: dying.attempts,
            ts: ctx.clock.now(),
        };
        let id = dying.letter.get_or_insert_with(|| ctx.ids.next_id()).clone();
        let encoded = letter.encode(dead_letters.clone(), id);
        bytes += encoded.max_json_bytes();
        letters.push(encoded);
    }
    Ok(letters)
}

pub(super) async fn submit(committer: Committer, submission: Submission) -> CommitResult {
    let answer = committer.submit(submission).await?;
    answer.await.unwrap_or_else(|_| Err(Unavailable::Closed.into()))
}
