//! One event of the window: how often it was delivered, and what it waits for.

use std::time::Instant;

use prombus_proto::{EventId, Timestamp};

use super::{CursorGeneration, MemberId};
use crate::groups::WhyUnfinished;
use crate::stored::cursor::Attempts;

/// The id and time of an event, which a cursor records for its floor.
pub(crate) type Identity = (EventId, Timestamp);

#[derive(Debug)]
pub(crate) struct Slot {
    /// Unknown until this process delivers the event.
    pub(crate) identity: Option<Identity>,
    pub(crate) attempts: Attempts,
    /// By this process, or when it loaded the group if it was delivered before.
    pub(super) first_delivered: Option<Instant>,
    /// The first cursor that counts all deliveries so far.
    pub(super) recorded_by: CursorGeneration,
    pub(crate) state: SlotState,
}

impl Slot {
    /// A slot as the stored cursor describes it.
    pub(super) const fn stored(attempts: Attempts, state: SlotState) -> Self {
        let recorded_by = CursorGeneration::STORED;
        Self { identity: None, attempts, first_delivered: None, recorded_by, state }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Leased(Lease),
    /// Acknowledged; the cursor that says so is not stored yet.
    Acknowledging(Lease),
    /// Failed, and not redelivered before this time.
    BackingOff(Instant),
    Redeliverable,
    /// Out of attempts, and waiting to become a dead letter.
    DeadLetterPending,
    /// Its dead letter is being stored.
    DeadLettering,
    Done,
}

impl SlotState {
    /// Returns what keeps the event, or `None` if it could be delivered.
    pub(crate) fn why(self, now: Instant) -> Option<WhyUnfinished> {
        let left = |until: Instant| until.saturating_duration_since(now);
        match self {
            Self::Leased(lease) => Some(WhyUnfinished::InFlight { left: left(lease.deadline) }),
            Self::BackingOff(until) => Some(WhyUnfinished::BackingOff { left: left(until) }),
            Self::Redeliverable => None,
            Self::Acknowledging(_) | Self::DeadLetterPending | Self::DeadLettering | Self::Done => {
                Some(WhyUnfinished::Storing)
            }
        }
    }

    /// Returns `true` if the next cursor counts the event as done.
    pub(super) const fn counts_as_done(self) -> bool {
        matches!(self, Self::Acknowledging(_) | Self::DeadLettering | Self::Done)
    }
}

/// Which member an event is leased to, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) member: MemberId,
    pub(crate) leased_at: Instant,
    pub(crate) deadline: Instant,
}
