//! One commit of a group: acknowledgements, what was published with them, dead letters, and the
//! cursor that says it all.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use prombus_engine::{Durability, Position};
use prombus_proto::{EventId, Seq, Timestamp};

use super::command::{Acked, Nacked, Reply};
use crate::error::Refusal;
use crate::groups::leases::{MemberId, Record};
use crate::publish::CommitResult;
use crate::publish::PublishBatch;
use crate::stored::mark::Marks;

/// What waits for the next commit.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Events whose acknowledgement is to be stored, and how long after their deliveries it came.
    pub(super) ending: Vec<(Seq, Duration)>,
    pub(super) publish: PublishBatch,
    pub(super) marks: Marks,
    pub(super) waiters: Vec<Waiter>,
    pub(super) dying: Vec<Dying>,
    /// Something else about the cursor is new.
    pub(super) changed: bool,
}

/// An event that has to go to the dead letters.
#[derive(Clone, Debug)]
pub(super) struct Dying {
    /// Nothing where many are gone at once: the letter then stands for all of them.
    pub(super) seq: Option<Seq>,
    pub(super) error: String,
    pub(super) attempts: u32,
    /// The id of its letter, once that was made: a letter whose commit has no answer is stored
    /// again under the same id, so that it is there once.
    pub(super) letter: Option<EventId>,
}

impl Dying {
    pub(super) const fn new(seq: Option<Seq>, error: String, attempts: u32) -> Self {
        Self { seq, error, attempts, letter: None }
    }
}

/// Who waits for a commit.
#[derive(Debug)]
pub(super) enum Waiter {
    Ack { ack: Ack, stale: Vec<usize>, published: usize },
    Nack { reply: Reply<Nacked> },
}

/// An acknowledgement that is not answered yet, but for what it publishes.
#[derive(Debug)]
pub(super) struct Ack {
    pub(super) member: MemberId,
    pub(super) ids: Vec<EventId>,
    /// To be marked in the same commit, until then.
    pub(super) mark_until: Option<Timestamp>,
    pub(super) reply: Reply<Acked>,
}

/// A commit on its way.
pub(super) struct Round {
    /// Which cursor it stores.
    pub(super) record: Record,
    pub(super) answer: Pin<Box<dyn Future<Output = CommitResult> + Send>>,
    pub(super) ending: Vec<(Seq, Duration)>,
    pub(super) waiters: Vec<Waiter>,
    pub(super) dying: Vec<Dying>,
}

/// How much may wait to be published or marked with acknowledgements; well below what a commit
/// takes.
const WAITING_BYTES: usize = 4 << 20;

impl Pending {
    /// Whether commands have to wait for the next commit.
    pub(super) const fn is_full(&self) -> bool {
        self.publish.bytes() + self.marks.bytes() >= WAITING_BYTES
    }

    pub(super) const fn is_empty(&self) -> bool {
        !self.changed && !self.has_to_be_safe()
    }

    /// Whether somebody is told that it is stored.
    pub(super) const fn has_to_be_safe(&self) -> bool {
        !self.ending.is_empty() || !self.waiters.is_empty() || !self.dying.is_empty()
    }

    /// How safe it has to be: as safe as the group's topic asks for where somebody is told, and as
    /// every topic asks for that it publishes to.
    pub(super) fn durability(&self, own: Durability) -> Durability {
        let cursor = if self.has_to_be_safe() { own } else { Durability::Buffered };
        cursor.max(self.publish.durability)
    }
}

impl Waiter {
    /// Answers that all is stored. `positions` are those of all that the round published for those
    /// who wait, in order.
    pub(super) fn stored(self, positions: &mut impl Iterator<Item = Position>) {
        match self {
            Waiter::Ack { ack, stale, published } => {
                let published = positions.take(published).collect();
                // Who is gone does not want the answer.
                let _ = ack.reply.send(Ok(Acked { stale, published }));
            }
            Waiter::Nack { reply } => {
                let _ = reply.send(Ok(Nacked { stale: false }));
            }
        }
    }

    pub(super) fn refused(self, refusal: Refusal) {
        match self {
            Waiter::Ack { ack, .. } => drop(ack.reply.send(Err(refusal))),
            Waiter::Nack { reply } => drop(reply.send(Err(refusal))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_as_safe_as_its_own_topic_asks_for() {
        let mut pending = Pending { changed: true, ..Pending::default() };
        assert_eq!(pending.durability(Durability::Fsync), Durability::Buffered);
        pending.ending.push((Seq(1), Duration::ZERO));
        assert_eq!(pending.durability(Durability::Fsync), Durability::Fsync);
        assert_eq!(pending.durability(Durability::Buffered), Durability::Buffered);
        pending.publish.append(PublishBatch::with_durability(Durability::Fsync));
        assert_eq!(pending.durability(Durability::Buffered), Durability::Fsync);
    }
}
