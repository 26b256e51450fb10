//! A connection's handle to a group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prombus_proto::{EventId, Group, Timestamp, Topic};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::error::Refusal;
use crate::groups::command::Departure;
use crate::groups::leases::{MAX_LEASE, MemberId};
use crate::groups::{Acked, AfterNack, Command, Nacked};
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
    /// Failures of an event before it is dead-lettered, from now on for the whole group.
    pub max_attempts: Option<u32>,
}

/// The answer to a command, which comes once the group has carried it out and stored the result. Dropped if
/// the group has ended: see [`Bus::dropped_reply`](crate::Bus::dropped_reply).
pub type GroupReply<T> = oneshot::Receiver<Result<T, Refusal>>;

/// One connection's membership in a group. Dropping it leaves the group: its leases end, and their events are
/// redelivered to other members.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) topic: Topic,
    pub(crate) group: Group,
    pub(crate) member: MemberId,
    pub(crate) commands: UnboundedSender<Command>,
    /// Set when the bus is closing: whatever ends this subscription then, no event is to blame.
    pub(crate) is_closing: Arc<AtomicBool>,
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

    /// Returns the identity of the membership, which no other one has.
    #[must_use]
    pub const fn member(&self) -> MemberId {
        self.member
    }

    /// Acknowledges the events with these ids.
    ///
    /// With `mark_until`, the same commit marks those that are leased to this subscription; for the others
    /// see [`Bus::ack_and_mark`](crate::Bus::ack_and_mark). With `publish`, the same commit stores those
    /// events; then every id has to be leased, and none that is to be marked may be marked already.
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

    /// Reports that the events with these ids failed, and what is to follow.
    #[must_use]
    pub fn nack(
        &self,
        ids: Vec<EventId>,
        reason: Option<String>,
        next: AfterNack,
    ) -> GroupReply<Nacked> {
        let member = self.member;
        let next = match next {
            AfterNack::Delay(delay) => AfterNack::Delay(delay.min(MAX_LEASE)),
            AfterNack::BackOff | AfterNack::DeadLetter => next,
        };
        self.ask(|reply| Command::Nack { member, ids, reason, next, reply })
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
        let departure = Departure::Unsubscribed;
        self.ask(|reply| Command::Leave { member, departure, reply: Some(reply) })
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

/// Returns why a group dropped a reply. The task of a group that no one could join ends, and drops the commands
/// that followed the refused join.
pub(crate) fn dropped_reply(is_closing: &AtomicBool) -> Refusal {
    if is_closing.load(Ordering::SeqCst) {
        Refusal::shutting_down()
    } else {
        Refusal::not_subscribed()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let is_closing = self.is_closing.load(Ordering::SeqCst);
        let departure = if is_closing { Departure::ServerStopped } else { Departure::Disconnected };
        // A stopped group has no leases.
        let leave = Command::Leave { member: self.member, departure, reply: None };
        let _ = self.commands.send(leave);
    }
}
