//! A connection's handle to a group.

use std::time::Duration;

use prombus_proto::{EventId, Group, Timestamp, Topic};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::groups::leases::{MAX_LEASE, MemberId};
use crate::groups::{Acked, Command, Nacked};
use crate::limits::Charges;
use crate::publish::PublishBatch;
use crate::topics::StartAt;

/// The options of a subscription. What is `None` is as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// Where a group that does not exist yet starts.
    pub start: StartAt,
    pub max_in_flight: Option<u32>,
    /// The length of a lease.
    pub ack_timeout: Option<Duration>,
    /// Deliveries of an event before it is dead-lettered.
    pub max_attempts: Option<u32>,
}

/// The answer to a command, which comes once the group has carried it out and stored the result.
pub type GroupReply<T> = oneshot::Receiver<Result<T, Refusal>>;

/// One connection's membership in a group. Dropping it leaves the group: its leases end, and their events
/// are redelivered to other members.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) topic: Topic,
    pub(crate) group: Group,
    pub(crate) member: MemberId,
    pub(crate) commands: UnboundedSender<Command>,
}

/// The shortest time from now to which a lease can be set.
const SHORTEST_EXTENSION: Duration = Duration::from_secs(1);

impl Subscription {
    #[must_use]
    pub const fn topic(&self) -> &Topic {
        &self.topic
    }

    #[must_use]
    pub const fn group(&self) -> &Group {
        &self.group
    }

    /// Acknowledges the events with these ids.
    ///
    /// With `mark_until`, the same commit marks them, even those whose lease has ended. With `publish`, the
    /// same commit stores those events; then every id has to be leased to this subscription, and none that
    /// is to be marked may be marked already.
    pub fn ack(
        &self,
        ids: Vec<EventId>,
        mark_until: Option<Timestamp>,
        publish: Option<PublishBatch>,
    ) -> GroupReply<Acked> {
        self.ack_charged(ids, mark_until, publish, Charges::default())
    }

    /// Like [`Subscription::ack`]. The tokens of `charges` return if the acknowledgement is refused.
    pub fn ack_charged(
        &self,
        ids: Vec<EventId>,
        mark_until: Option<Timestamp>,
        publish: Option<PublishBatch>,
        charges: Charges,
    ) -> GroupReply<Acked> {
        let member = self.member;
        self.ask(|reply| Command::Ack { member, ids, mark_until, publish, charges, reply })
    }

    /// Reports that the event failed. It is redelivered after `delay`, or after a back-off that grows with
    /// its attempts.
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

    /// Sets the deadline of a lease to `time` from now, at least a second.
    #[must_use]
    pub fn extend(&self, id: EventId, time: Duration) -> GroupReply<()> {
        let (member, time) = (self.member, time.clamp(SHORTEST_EXTENSION, MAX_LEASE));
        self.ask(|reply| Command::Extend { member, id, time, reply })
    }

    /// Stops deliveries. Leases keep their deadlines.
    #[must_use]
    pub fn pause(&self) -> GroupReply<()> {
        let member = self.member;
        self.ask(|reply| Command::SetPaused { member, paused: true, reply })
    }

    /// Continues deliveries.
    #[must_use]
    pub fn resume(&self) -> GroupReply<()> {
        let member = self.member;
        self.ask(|reply| Command::SetPaused { member, paused: false, reply })
    }

    /// Leaves the group. The events of its leases are redelivered to other members at once.
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
        // A stopped group drops the reply, and the receiver reports that.
        let _ = self.commands.send(command(reply));
        answer
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let (member, why) = (self.member, "its connection was closed");
        // A stopped group has no leases.
        let _ = self.commands.send(Command::Leave { member, why, reply: None });
    }
}
