//! What a consumer of each group does, and what it tells the ledger.

use super::ledger::{Ledger, WORKING};
use super::moved::{Moved, SentAck};

/// What a consumer does with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Ack,
    /// Be delivered again.
    Fail,
    /// Make it a dead letter.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Some,
    /// The answer says `stale`, or that the subscription is over.
    None,
    /// Without an answer, or with one that says neither.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Acknowledges some and gives up others, in the group with this number.
    Working(usize),
    Sought,
    Deleted,
}

/// An answer that a consumer waits for.
#[derive(Debug)]
pub(crate) enum Sent {
    Worked(Action, u64),
    Moved(SentAck),
}

impl Role {
    pub(crate) fn group(self) -> &'static str {
        match self {
            Role::Working(number) => WORKING[number],
            Role::Sought => super::ledger::SOUGHT,
            Role::Deleted => super::ledger::DELETED,
        }
    }

    fn moved(self, ledger: &Ledger) -> Option<std::sync::MutexGuard<'_, Moved>> {
        match self {
            Role::Working(_) => None,
            Role::Sought => Some(ledger.sought()),
            Role::Deleted => Some(ledger.deleted()),
        }
    }

    /// Returns the number of a subscription that was answered.
    pub(crate) fn subscribed(self, ledger: &Ledger) -> u64 {
        self.moved(ledger).map_or(0, |mut moved| moved.subscribed())
    }

    pub(crate) fn unsubscribed(self, ledger: &Ledger, subscription: u64) {
        if let Some(mut moved) = self.moved(ledger) {
            moved.unsubscribed(subscription);
        }
    }

    pub(crate) fn delivered(
        self,
        ledger: &Ledger,
        subscription: u64,
        (seq, attempt): (u64, u64),
    ) -> (Action, Sent) {
        let Role::Working(number) = self else {
            let moved = self.moved(ledger).expect("it does not work");
            return (Action::Ack, Sent::Moved(moved.ack_sent(subscription, seq)));
        };
        let action = match ledger.random.below(100) {
            _ if ledger.is_draining() => Action::Ack,
            0..20 => Action::GiveUp,
            20..25 => Action::Fail,
            _ => Action::Ack,
        };
        let mut group = ledger.working(number);
        group.delivered(seq, attempt);
        match action {
            Action::Ack => group.ack_sent(seq),
            Action::GiveUp => group.give_up_sent(seq),
            Action::Fail => {}
        }
        (action, Sent::Worked(action, seq))
    }

    pub(crate) fn answered(self, ledger: &Ledger, sent: &Sent, effect: Effect) {
        match (self, sent, effect) {
            (Role::Working(number), Sent::Worked(action, seq), Effect::Some) => match action {
                Action::Ack => ledger.working(number).acked(*seq),
                Action::GiveUp => ledger.working(number).given_up(*seq),
                Action::Fail => {}
            },
            (_, Sent::Moved(ack), Effect::Some) => {
                self.moved(ledger).expect("it is moved").acked(*ack);
            }
            (_, Sent::Moved(ack), Effect::Unknown) => {
                self.moved(ledger).expect("it is moved").perhaps_acked(*ack);
            }
            _ => {}
        }
    }
}
