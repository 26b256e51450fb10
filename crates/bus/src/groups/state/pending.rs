//! One commit of a group: acknowledgements, events published and marks stored with them, dead letters, and
//! the cursor that records it all.

use std::time::{Duration, Instant};

use prombus_engine::{CommitError, Durability, Position};
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use crate::error::Refusal;
use crate::groups::command::{Acked, Nacked, Reply};
use crate::groups::leases::{CursorGeneration, MemberId};
use crate::limits::{Charges, ConnectionLimit};
use crate::publish::PublishBatch;
use crate::stored::mark::Marks;

/// What the next commit stores.
#[derive(Debug, Default)]
pub(super) struct CommitDraft {
    /// Acknowledged events, and how long after their delivery.
    pub(super) acks: Vec<(Seq, Duration)>,
    pub(super) publish: PublishBatch,
    pub(super) marks: Marks,
    pub(super) waiters: Vec<Waiter>,
    pub(super) dead_letters: Vec<DeadLetterPending>,
    /// Whether the cursor has changed otherwise.
    pub(super) cursor_changed: bool,
}

/// An event that becomes a dead letter.
#[derive(Clone, Debug)]
pub(in crate::groups) struct DeadLetterPending {
    /// `None` if the letter stands for a range of events that cannot be read.
    pub(in crate::groups) seq: Option<Seq>,
    /// The position of an earlier dead letter with a copy of the event, which was redriven.
    pub(in crate::groups) copy: Option<Seq>,
    pub(in crate::groups) error: String,
    pub(in crate::groups) attempts: u32,
    /// Chosen when the letter is first encoded, and kept: a letter whose commit had no answer is stored
    /// again under the same id, and so only once.
    pub(in crate::groups) letter_id: Option<EventId>,
}

impl DeadLetterPending {
    pub(super) const fn of(seq: Seq, error: String, attempts: u32) -> Self {
        Self { seq: Some(seq), copy: None, error, attempts, letter_id: None }
    }

    pub(super) const fn of_unreadable(error: String) -> Self {
        Self { seq: None, copy: None, error, attempts: 0, letter_id: None }
    }
}

/// A command that is answered once its commit is stored.
#[derive(Debug)]
pub(in crate::groups) enum Waiter {
    Ack { ack: Ack, stale: Vec<usize>, published: usize },
    Nack { reply: Reply<Nacked>, stale: bool },
}

/// An unanswered acknowledgement, without the events it publishes.
#[derive(Debug)]
pub(in crate::groups) struct Ack {
    pub(in crate::groups) member: MemberId,
    pub(in crate::groups) ids: Vec<EventId>,
    /// When the marks expire that the same commit stores, if it is to store any.
    pub(in crate::groups) mark_until: Option<Timestamp>,
    /// Kept if the answer is positive.
    pub(in crate::groups) charges: Charges,
    pub(in crate::groups) lookups: Lookups,
    pub(in crate::groups) reply: Reply<Acked>,
}

/// Whether a command has taken tokens for ids that are not on lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::groups) enum Lookups {
    NotCharged,
    /// Also if it goes into another commit because the first one failed.
    Charged,
}

/// A commit that was submitted, and what follows when it is answered.
#[derive(Debug)]
pub(super) struct CommitInFlight {
    pub(super) generation: CursorGeneration,
    pub(super) acks: Vec<(Seq, Duration)>,
    pub(super) waiters: Vec<Waiter>,
    /// The events that the waiters publish, in order.
    pub(super) published: Vec<(Topic, EventId)>,
    pub(super) dead_letters: Vec<DeadLetterPending>,
}

/// A commit that was reported as failed. It is stored nevertheless if its answer was lost.
#[derive(Debug)]
pub(in crate::groups) struct FailedCommit {
    pub(super) acks: Vec<(Seq, Duration)>,
    pub(super) waiters: Vec<Waiter>,
    /// The events that the waiters publish, in order.
    pub(super) published: Vec<(Topic, EventId)>,
    pub(super) error: CommitError,
}

/// An acknowledgement that is stored, together with the events it published, although its commit was
/// reported as failed.
#[derive(Debug)]
pub(in crate::groups) struct StoredAck {
    pub(in crate::groups) ack: Ack,
    pub(in crate::groups) stale: Vec<usize>,
    pub(in crate::groups) published: Vec<(Topic, EventId)>,
}

/// Bytes that may wait to be published or marked with acknowledgements; well below the size of a commit.
const MAX_PENDING_BYTES: usize = 4 << 20;

impl CommitDraft {
    /// Returns `true` if commands have to wait for the next commit.
    pub(super) const fn is_full(&self) -> bool {
        self.publish.bytes() + self.marks.bytes() >= MAX_PENDING_BYTES
    }

    pub(super) const fn is_empty(&self) -> bool {
        !self.cursor_changed && !self.is_promised()
    }

    /// Returns `true` if somebody is told that the commit is stored.
    const fn is_promised(&self) -> bool {
        !self.acks.is_empty() || !self.waiters.is_empty() || !self.dead_letters.is_empty()
    }

    /// The durability the commit needs: that of the group's topic if somebody is told that it is stored,
    /// and that of every topic it publishes to.
    pub(super) fn durability(&self, topic: Durability) -> Durability {
        let cursor = if self.is_promised() { topic } else { Durability::Buffered };
        cursor.max(self.publish.durability)
    }
}

impl Waiter {
    /// Answers that the commit is stored. `positions` are those of all events that its waiters published,
    /// in order.
    pub(super) fn stored(self, positions: &mut impl Iterator<Item = Position>) {
        match self {
            Waiter::Ack { ack, stale, published } => {
                let published = positions.take(published).collect();
                ack.answer(Ok(Acked { stale, published }));
            }
            // The receiver may have been dropped.
            Waiter::Nack { reply, stale } => drop(reply.send(Ok(Nacked { stale }))),
        }
    }

    pub(super) fn refused(self, refusal: Refusal) {
        match self {
            Waiter::Ack { ack, .. } => ack.answer(Err(refusal)),
            Waiter::Nack { reply, .. } => drop(reply.send(Err(refusal))),
        }
    }
}

impl Ack {
    /// Takes the tokens for `stale` ids that are not on lease, once.
    pub(super) fn owe_lookups(&mut self, stale: usize, limit: &ConnectionLimit, now: Instant) {
        if self.lookups == Lookups::NotCharged {
            self.lookups = Lookups::Charged;
            limit.owe_lookups(stale, now);
        }
    }

    pub(in crate::groups) fn answer(self, answer: Result<Acked, Refusal>) {
        if answer.is_ok() {
            self.charges.keep();
        }
        // The receiver may have been dropped.
        let _ = self.reply.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_events_get_the_durability_of_their_own_topic() {
        let mut pending = CommitDraft { cursor_changed: true, ..CommitDraft::default() };
        assert_eq!(pending.durability(Durability::Fsync), Durability::Buffered);
        pending.acks.push((Seq(1), Duration::ZERO));
        assert_eq!(pending.durability(Durability::Fsync), Durability::Fsync);
        assert_eq!(pending.durability(Durability::Buffered), Durability::Buffered);
        pending.publish.append(PublishBatch::with_durability(Durability::Fsync));
        assert_eq!(pending.durability(Durability::Buffered), Durability::Fsync);
    }
}
