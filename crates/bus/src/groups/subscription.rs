//! One connection's part in a group.

use std::time::Duration;

use prombus_proto::{EventId, Group, Timestamp, Topic};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::groups::leases::{MAX_LEASE, MemberId};
use crate::groups::{Acked, Command, Nacked};
use crate::publish::PublishBatch;
use crate::topics::StartAt;

/// What a subscription asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Where a group that does not exist yet begins.
    pub start: StartAt,
    /// How many events may be out at a time.
    pub max_in_flight: Option<u32>,
    /// How long a lease lasts.
    pub ack_timeout: Option<Duration>,
    /// How often an event is delivered before it goes to the dead letters.
    pub max_attempts: Option<u32>,
}

/// An answer that comes when the group has done what was asked.
pub type GroupReply<T> = oneshot::Receiver<Result<T, Refusal>>;

/// One connection's part in a group. When it is dropped, what it has goes to others.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) topic: Topic,
    pub(crate) group: Group,
    pub(crate) member: MemberId,
    pub(crate) commands: UnboundedSender<Command>,
}

/// Leases are extended to this much from now at least.
const SHORTEST_EXTENSION: Duration = Duration::from_secs(1);

impl Subscription {
    /// Its topic.
    #[must_use]
    pub const fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Its group.
    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// The events of these ids are done.
    ///
    /// With `mark_until` they are marked in the same commit, even those that are not lent any more.
    /// With `publish`, those events are stored in the same commit, every id has to be lent to this
    /// subscription, and if it is to be marked none may be marked already.
    pub fn ack(
        &self,
        ids: Vec<EventId>,
        mark_until: Option<Timestamp>,
        publish: Option<PublishBatch>,
    ) -> GroupReply<Acked> {
        let member = self.member;
        self.ask(|reply| Command::Ack { member, ids, mark_until, publish, reply })
    }

    /// The event of this id failed; it is delivered again after `delay`, or after a time that grows
    /// with its attempts.
    #[must_use]
    pub fn nack(
        &self,
        id: EventId,
        reason: Option<String>,
        delay: Option<Duration>,
    ) -> GroupReply<Nacked> {
        let (member, delay) = (self.member, delay.map(|delay| delay.min(MAX_LEASE)));
        self.ask(|reply| Command::Nack { member, id, reason, delay, reply })
    }

    /// The lease of this id now ends so long from now, at least a second.
    #[must_use]
    pub fn extend(&self, id: EventId, time: Duration) -> GroupReply<()> {
        let (member, time) = (self.member, time.clamp(SHORTEST_EXTENSION, MAX_LEASE));
        self.ask(|reply| Command::Extend { member, id, time, reply })
    }

    /// Nothing more is delivered. What is out keeps its deadline.
    #[must_use]
    pub fn pause(&self) -> GroupReply<()> {
        let member = self.member;
        self.ask(|reply| Command::SetPaused { member, paused: true, reply })
    }

    /// Delivery goes on.
    #[must_use]
    pub fn resume(&self) -> GroupReply<()> {
        let member = self.member;
        self.ask(|reply| Command::SetPaused { member, paused: false, reply })
    }

    /// Ends it; what it has goes to others at once.
    #[must_use]
    pub fn end(self) -> GroupReply<()> {
        let member = self.member;
        let why = "its consumer unsubscribed";
        self.ask(|reply| Command::Leave { member, why, reply: Some(reply) })
    }

    fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> Command,
    ) -> GroupReply<T> {
        let (reply, answer) = oneshot::channel();
        // A group that has stopped drops the reply, which says as much.
        let _ = self.commands.send(command(reply));
        answer
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let (member, why) = (self.member, "its connection was closed");
        // A group that has stopped has given everything back already.
        let _ = self.commands.send(Command::Leave { member, why, reply: None });
    }
}
