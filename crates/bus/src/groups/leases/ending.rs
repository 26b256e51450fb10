//! Leases that end without an acknowledgement: what counts against the event, and what follows.

use std::time::{Duration, Instant};

use prombus_proto::Seq;

use super::slot::SlotState;
use super::{CursorGeneration, Leases, MemberId};
use crate::stored::cursor::Attempts;

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The event was NACKed, or not acknowledged before its deadline. It is redelivered after `delay`, or
    /// else after a back-off.
    Failed { delay: Option<Duration> },
    /// The member gave the event up.
    GivenUp,
    /// The connection was lost. That alone never dead-letters the event, which may just have been in flight.
    Disconnected,
    /// The connection was lost while a suspected event was the only one in flight on it.
    DisconnectedAlone,
    /// The server stopped or the member unsubscribed, which says nothing about the event.
    Released,
}

/// A lease that ended without an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedLease {
    pub(crate) seq: Seq,
    pub(crate) member: MemberId,
    pub(crate) attempts: Attempts,
    pub(crate) next: AfterLease,
}

/// What follows the end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterLease {
    Redeliver,
    /// The event was given up, or has used up its attempts.
    DeadLetter,
}

impl LeaseEnd {
    const fn is_failure(self) -> bool {
        matches!(self, Self::Failed { .. } | Self::GivenUp | Self::DisconnectedAlone)
    }

    const fn is_disconnect(self) -> bool {
        matches!(self, Self::Disconnected | Self::DisconnectedAlone)
    }
}

impl Leases {
    /// Ends the lease of `seq` without an acknowledgement.
    pub(crate) fn end(&mut self, seq: Seq, end: LeaseEnd, now: Instant) -> Option<EndedLease> {
        let rules = self.rules;
        let slot = self.slot_mut(seq)?;
        let SlotState::Leased(lease) = slot.state else { return None };
        let Attempts { failures, disconnects, .. } = &mut slot.attempts;
        *failures = failures.saturating_add(end.is_failure().into());
        *disconnects = disconnects.saturating_add(end.is_disconnect().into());
        let is_used_up = end.is_failure() && u32::from(*failures) >= rules.max_attempts;
        let next = if is_used_up || end == LeaseEnd::GivenUp {
            AfterLease::DeadLetter
        } else {
            AfterLease::Redeliver
        };
        let wait = match end {
            LeaseEnd::Failed { delay } => delay.unwrap_or_else(|| rules.delays.after(*failures)),
            // Others take over at once when a connection is lost; only repeated losses back off.
            LeaseEnd::Disconnected | LeaseEnd::DisconnectedAlone => {
                rules.delays.after(*disconnects - 1)
            }
            LeaseEnd::GivenUp | LeaseEnd::Released => Duration::ZERO,
        };
        let attempts = slot.attempts;
        slot.state = match next {
            AfterLease::DeadLetter => SlotState::DeadLetterPending,
            AfterLease::Redeliver if wait.is_zero() => SlotState::Redeliverable,
            AfterLease::Redeliver => SlotState::BackingOff(now + wait),
        };
        match slot.state {
            SlotState::Redeliverable => self.offer_redelivery(seq),
            SlotState::BackingOff(until) => self.set_timer(until),
            _ => {}
        }
        self.forget_id(seq);
        Some(EndedLease { seq, member: lease.member, attempts, next })
    }

    /// Takes back the delivery `attempt` to `member`, which never left this process, as if `seq` had not
    /// been leased. Returns `false` if that lease has ended, whoever holds the event now.
    pub(crate) fn revoke_unsent(&mut self, seq: Seq, member: MemberId, attempt: u32) -> bool {
        let Some(slot) = self.slot_mut(seq) else { return false };
        let is_its = matches!(slot.state, SlotState::Leased(lease) if lease.member == member);
        if !is_its || slot.attempts.deliveries != attempt {
            return false;
        }
        slot.attempts.deliveries -= 1;
        if slot.attempts.deliveries == 0 {
            slot.first_delivered = None;
        }
        // Nobody saw this attempt, and the ones before it were recorded before it started.
        slot.recorded_by = CursorGeneration::STORED;
        slot.state = SlotState::Redeliverable;
        self.offer_redelivery(seq);
        self.forget_id(seq);
        true
    }

    /// Gives up on a redeliverable event: it waits to become a dead letter.
    pub(crate) fn dead_letter(&mut self, seq: Seq) {
        if self.is_redeliverable(seq)
            && let Some(slot) = self.slot_mut(seq)
        {
            slot.state = SlotState::DeadLetterPending;
            self.withdraw_redelivery(seq);
        }
    }

    /// Starts to store the dead letter of `seq`.
    pub(crate) fn begin_dead_letter(&mut self, seq: Seq) {
        if let Some(slot) = self.slot_mut(seq)
            && slot.state == SlotState::DeadLetterPending
        {
            slot.state = SlotState::DeadLettering;
        }
    }

    /// Reverts [`Leases::begin_dead_letter`]: the dead letter of `seq` could not be stored.
    pub(crate) fn undo_dead_letter(&mut self, seq: Seq) {
        if let Some(slot) = self.slot_mut(seq)
            && slot.state == SlotState::DeadLettering
        {
            slot.state = SlotState::DeadLetterPending;
        }
    }
}
