//! What a group is asked to do, and what it answers.

use std::time::Duration;

use prombus_engine::{Position, Version};
use prombus_proto::{EventId, Seq, Timestamp};
use tokio::sync::oneshot;

use super::members::Member;
use crate::error::Refusal;
use crate::groups::leases::MemberId;
use crate::publish::PublishBatch;
use crate::topics::StartAt;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// What became of an acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Which of the ids, by their places, were not lent to this subscription.
    pub stale: Vec<usize>,
    /// Where the events published with it are.
    pub published: Vec<Position>,
}

/// What became of a negative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nacked {
    /// Whether the event was not lent to this subscription.
    pub stale: bool,
}

#[derive(Debug)]
pub(crate) enum Command {
    Join {
        member: Member,
        start: StartAt,
        reply: Reply<()>,
    },
    /// The member is gone, with its connection or by its own wish.
    Leave {
        member: MemberId,
        why: &'static str,
        reply: Option<Reply<()>>,
    },
    Ack {
        member: MemberId,
        ids: Vec<EventId>,
        /// To be marked in the same commit, until then.
        mark_until: Option<Timestamp>,
        /// Events to publish in the same commit; then every id has to be lent.
        publish: Option<PublishBatch>,
        reply: Reply<Acked>,
    },
    Nack {
        member: MemberId,
        id: EventId,
        reason: Option<String>,
        rest: Option<Duration>,
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
    /// Whoever held the group is gone or gave it back, if its group_lease still is this one.
    TakeOver {
        group_lease: Option<Version>,
    },
    Describe {
        reply: oneshot::Sender<Description>,
    },
    Stop {
        reply: oneshot::Sender<()>,
    },
}

/// How a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// All up to here is done.
    pub floor: Seq,
    /// How many events are out.
    pub in_flight: usize,
    /// How many subscriptions share it.
    pub members: usize,
}
