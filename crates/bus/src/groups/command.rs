//! What a group is asked to do, and what it answers.

use std::time::Duration;

use prombus_engine::{Position, Version};
use prombus_proto::frame::EndReason;
use prombus_proto::{EventId, Seq, Timestamp};
use tokio::sync::oneshot;

use super::members::Member;
use crate::error::Refusal;
use crate::groups::leases::MemberId;
use crate::limits::{Charges, Principal};
use crate::publish::PublishBatch;
use crate::stored::cursor::Attempts;
use crate::stored::group_properties::GroupProperties;
use crate::topics::StartAt;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// The answer to an acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// The indexes of the ids that were not leased to this subscription.
    pub stale: Vec<usize>,
    /// The positions of the events published with it.
    pub published: Vec<Position>,
}

/// The answer to a negative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nacked {
    /// Whether at least one of the events was not leased to this subscription.
    pub stale: bool,
}

/// What follows a negative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterNack {
    /// A redelivery after a back-off that grows with every failure.
    BackOff,
    /// A redelivery after this time.
    Delay(Duration),
    /// A dead letter, however many attempts are left.
    DeadLetter,
}

/// The group that a member has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// Failures of an event until it becomes a dead letter.
    pub max_attempts: u32,
    /// Whether the group did not exist before.
    pub created: bool,
}

/// Why a member left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    Unsubscribed,
    /// Its connection is gone.
    Disconnected,
    ServerStopped,
}

#[derive(Debug)]
pub(crate) enum Command {
    Join {
        member: Member,
        /// Where the group starts if it does not exist.
        start: StartAt,
        /// The group's new `max_attempts`, if the member names it.
        max_attempts: Option<u32>,
        reply: Reply<GroupInfo>,
    },
    Leave {
        member: MemberId,
        departure: Departure,
        reply: Option<Reply<()>>,
    },
    Ack {
        member: MemberId,
        ids: Vec<EventId>,
        /// Marks the events in the same commit, until this time.
        mark_until: Option<Timestamp>,
        /// Events to publish in the same commit, which requires that every id is leased.
        publish: Option<PublishBatch>,
        /// Kept if the answer is positive.
        charges: Charges,
        reply: Reply<Acked>,
    },
    Nack {
        member: MemberId,
        ids: Vec<EventId>,
        reason: Option<String>,
        next: AfterNack,
        reply: Reply<Nacked>,
    },
    Extend {
        member: MemberId,
        id: EventId,
        time: Duration,
        reply: Reply<()>,
    },
    SetPaused {
        member: MemberId,
        paused: bool,
        reply: Reply<()>,
    },
    /// The owner released the group, or died with its lease at version `expired`.
    TakeOver {
        expired: Option<Version>,
    },
    /// Another gateway stored these properties of the group.
    PropertiesStored(GroupProperties),
    /// Another gateway deleted the group with the commit `at`.
    DeletedElsewhere {
        at: Version,
        reason: EndReason,
    },
    /// An operator moves the group, which exists.
    Seek {
        /// The next event the group gets, which may not exist yet.
        next: Seq,
        /// What consumers have marked as handled stays marked.
        honour_marks: bool,
        /// Answered with the number of marks that were removed.
        reply: Reply<u64>,
    },
    /// An operator sets the properties of the group, which exists.
    Configure {
        properties: GroupProperties,
        reply: Reply<()>,
    },
    /// Dead letters of the group were redriven.
    Redriven,
    /// Another gateway moved the group, or redrove dead letters of it.
    ChangedElsewhere,
    Describe {
        reply: oneshot::Sender<Description>,
    },
    Inspect {
        reply: oneshot::Sender<Inspection>,
    },
    Stop {
        reply: oneshot::Sender<()>,
    },
    /// The group is about to be deleted: its members are told so, and its task ends without storing anything
    /// more. Nobody may start the group again before it is deleted.
    End {
        reason: EndReason,
        reply: oneshot::Sender<()>,
    },
}

impl Command {
    /// Returns how many ids it names, at least one: handling it takes the longer the more there are.
    pub(crate) const fn ids(&self) -> usize {
        match self {
            Self::Ack { ids, .. } | Self::Nack { ids, .. } => ids.len(),
            _ => 1,
        }
    }
}

/// What the gateway that delivers a group knows beyond what is stored.
#[derive(Clone, Debug)]
pub(crate) struct Inspection {
    /// Whether another gateway delivers the group, or none.
    pub(crate) is_owned: bool,
    pub(crate) members: Vec<MemberDetails>,
    /// The oldest event that was delivered or redriven.
    pub(crate) oldest: Option<OldestOpen>,
    /// Why an event that nothing else keeps is not delivered.
    pub(crate) undelivered: WhyUnfinished,
}

/// A subscription to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDetails {
    /// The principal whose limits apply to the connection; `None` if principals have no limits.
    pub principal: Option<Principal>,
    pub in_flight: u32,
    pub max_in_flight: u32,
    pub ack_timeout: Duration,
    pub is_paused: bool,
}

/// The oldest event that a group has not finished.
#[derive(Clone, Debug)]
pub(crate) struct OldestOpen {
    pub(crate) seq: Seq,
    /// Known once this process has delivered the event.
    pub(crate) id: Option<EventId>,
    pub(crate) attempts: Attempts,
    /// The last reason of a NACK.
    pub(crate) last_reason: Option<String>,
    pub(crate) why: WhyUnfinished,
}

/// Why an event is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyUnfinished {
    /// A member has it, and so long to acknowledge it.
    InFlight {
        left: Duration,
    },
    /// It failed and is delivered again after this time.
    BackingOff {
        left: Duration,
    },
    /// Its acknowledgement or its dead letter is being stored.
    Storing,
    NoMembers,
    /// Every member is paused.
    Paused,
    /// Every member has as many events in flight as it takes, or does not read what it is sent, or has no
    /// tokens left.
    MembersBusy,
    /// Connections were lost with it in flight: it waits for a member with nothing else in flight.
    WaitsToBeAlone,
    /// It is about to be delivered.
    Ready,
    /// Another gateway delivers the group and knows.
    AtAnotherGateway,
}

/// A snapshot of a group's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Every event up to and including this one is done.
    pub floor: Seq,
    pub in_flight: usize,
    pub members: usize,
}
