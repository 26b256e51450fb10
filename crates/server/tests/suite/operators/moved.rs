//! What must hold of a group that acknowledges everything, while an operator moves it or deletes it again and again.
//!
//! A move is begun, and then answered. From then on the group is in a run that starts at a known event: it acknowledges
//! each event from there once, and none before. Deliveries from before may be read late; their ACKs have no effect. While
//! a move has no answer nothing is known, so it is repeated.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// How many moves were begun.
    begun: u64,
    run: Option<Run>,
    /// ACKs that took effect, or may have, since a move without an answer was begun.
    unclear: BTreeSet<u64>,
    /// The subscriptions, with how many moves were begun before them.
    subscriptions: BTreeMap<u64, u64>,
    last_subscription: u64,
    /// A deletion ends subscriptions; a seek does not.
    is_deleted: bool,
    runs: u64,
}

/// Since the last move.
#[derive(Debug)]
struct Run {
    first: u64,
    acked: BTreeSet<u64>,
    /// ACKs of which it is unknown whether they took effect in this run or earlier, or at all.
    perhaps: BTreeSet<u64>,
}

/// An ACK without an answer yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAck {
    seq: u64,
    /// How many moves were begun when the subscription was answered.
    subscribed_after: u64,
    /// The last move, if it was answered before the ACK was sent.
    sent_in: Option<u64>,
}

impl Moved {
    pub(crate) fn by_deletions() -> Self {
        Self { is_deleted: true, ..Self::default() }
    }

    /// Returns the number of a subscription that was answered.
    pub(crate) fn subscribed(&mut self) -> u64 {
        self.last_subscription += 1;
        self.subscriptions.insert(self.last_subscription, self.begun);
        self.last_subscription
    }

    pub(crate) fn unsubscribed(&mut self, subscription: u64) {
        self.subscriptions.remove(&subscription);
    }

    /// Returns `true` if all subscriptions from before the last move have ended.
    pub(crate) fn has_ended_subscriptions(&self) -> bool {
        self.subscriptions.values().all(|subscribed_after| *subscribed_after >= self.begun)
    }

    pub(crate) fn began(&mut self) {
        self.begun += 1;
        self.run = None;
    }

    /// The move that was begun last is stored: the group goes on at `first`.
    pub(crate) fn answered(&mut self, first: u64) {
        let perhaps = std::mem::take(&mut self.unclear);
        self.run = Some(Run { first, acked: BTreeSet::new(), perhaps });
        self.runs += 1;
    }

    pub(crate) fn ack_sent(&self, subscription: u64, seq: u64) -> SentAck {
        let subscribed_after = self.subscriptions[&subscription];
        let sent_in = self.run.as_ref().map(|_| self.begun);
        SentAck { seq, subscribed_after, sent_in }
    }

    /// The ACK took effect.
    pub(crate) fn acked(&mut self, ack: SentAck) {
        let is_old = ack.sent_in.is_some_and(|after| ack.subscribed_after < after);
        assert!(
            !self.is_deleted || !is_old,
            "{ack:?} took effect after the group of its subscription was deleted: {self:?}"
        );
        match &mut self.run {
            Some(run) if ack.sent_in == Some(self.begun) => {
                assert!(ack.seq >= run.first, "{ack:?} took effect in front of {}", run.first);
                assert!(run.acked.insert(ack.seq), "{ack:?} is the second one to take effect");
            }
            _ => self.perhaps_acked(ack),
        }
    }

    /// The ACK may have taken effect.
    pub(crate) fn perhaps_acked(&mut self, ack: SentAck) {
        let acks = self.run.as_mut().map_or(&mut self.unclear, |run| &mut run.perhaps);
        acks.insert(ack.seq);
    }

    /// Returns `true` if the group has acknowledged every event from where it was moved to up to `last`.
    pub(crate) fn has_acked_up_to(&self, last: u64) -> bool {
        self.run.as_ref().is_some_and(|run| {
            (run.first..=last).all(|seq| run.acked.contains(&seq) || run.perhaps.contains(&seq))
        })
    }

    pub(crate) fn check_end(&self) {
        assert!(self.runs > 1, "the run moved the group");
    }
}
