//! The commands of members: join and leave, ACK, NACK and MODACK, pause and resume.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Instant;

use prombus_proto::frame::EndReason;
use prombus_proto::{ErrorCode, EventId};

use super::effect::{Claim, Effect, Joining, MarkLookup, NamedBy, Seeking};
use super::pending::{Ack, Lookups, Waiter};
use super::{GroupName, GroupState};
use crate::error::Refusal;
use crate::groups::allowed_attempts;
use crate::groups::command::{Acked, AfterNack, Command, Departure, Nacked, Reply};
use crate::groups::leases::{LeaseEnd, MemberId};
use crate::groups::members::Isolation;
use crate::publish::PublishBatch;
use crate::spans::DeliveryEnd;
use crate::stored::group_properties::GroupProperties;
use crate::stored::mark::Marks;

impl GroupState {
    pub(in crate::groups) fn handle(&mut self, command: Command, now: Instant) {
        // Every answer may find its receiver dropped.
        match command {
            Command::Join { member, start, max_attempts, reply } => {
                let max_attempts = max_attempts.map(allowed_attempts);
                self.join(Joining { member, start, max_attempts, created: false, reply });
            }
            Command::Leave { member, departure, reply } => {
                let was_member = self.leave(member, departure, now);
                if let Some(reply) = reply {
                    let _ = reply.send(was_member);
                }
            }
            Command::Ack { member, ids, mark_until, publish, charges, reply } => {
                let ack =
                    Ack { member, ids, mark_until, charges, reply, lookups: Lookups::NotCharged };
                self.ack(ack, publish, now);
            }
            Command::Nack { member, ids, reason, next, reply } => {
                let nacked = self.nack(member, &ids, reason.as_deref(), next, now);
                self.answer_nack(nacked, reply);
            }
            Command::Extend { member, id, time, reply } => {
                let _ = reply.send(self.extend(member, &id, now + time));
            }
            Command::SetPaused { member, paused, reply } => {
                let _ = reply.send(self.set_paused(member, paused));
            }
            Command::TakeOver { expired } => self.take_over(expired),
            Command::PropertiesStored(properties) => self.apply_properties(properties),
            Command::DeletedElsewhere { at, reason } => {
                // A newer cursor or lease belongs to a group that was created after that.
                if self.partition.known_version.is_none_or(|known| known < at) {
                    self.end_members(reason);
                    self.effects.push_back(Effect::Unwatch);
                }
            }
            Command::Seek { next, honour_marks, reply } => {
                self.effects.push_back(Effect::Seek(Seeking { next, honour_marks, reply }));
            }
            Command::Configure { properties, reply } => {
                let named_by = NamedBy::Operator(reply);
                self.effects.push_back(Effect::StoreProperties(properties, named_by));
            }
            Command::Redriven => self.effects.extend(self.owned().map(|_| Effect::ReadRedrives)),
            Command::ChangedElsewhere => self.changed_elsewhere(),
            Command::Describe { reply } => drop(reply.send(self.describe())),
            Command::Inspect { reply } => drop(reply.send(self.inspect(now))),
            Command::Stop { .. } | Command::End { .. } => {
                unreachable!("the task stops and ends the group itself")
            }
        }
    }

    fn join(&mut self, joining: Joining) {
        if self.owned().is_some() {
            self.admit(joining);
        } else if self.is_shared {
            self.effects.push_back(Effect::Claim(Claim::Join(joining)));
        } else {
            self.effects.push_back(Effect::Load(joining));
        }
    }

    /// Lets a member join the group, which is loaded, once what it names for the group is stored.
    pub(super) fn admit(&mut self, joining: Joining) {
        let named = GroupProperties { max_attempts: joining.max_attempts };
        if named.max_attempts.is_none() || named == self.properties {
            self.joined(joining);
        } else {
            self.effects.push_back(Effect::StoreProperties(named, NamedBy::Member(joining)));
        }
    }

    /// Continues after [`Effect::StoreProperties`].
    pub(in crate::groups) fn properties_stored(
        &mut self,
        properties: GroupProperties,
        named_by: NamedBy,
        stored: Result<(), Refusal>,
    ) {
        if stored.is_ok() {
            self.apply_properties(properties);
        }
        // The receivers may have been dropped.
        match (named_by, stored) {
            (NamedBy::Member(joining), Ok(())) => self.joined(joining),
            (NamedBy::Member(joining), Err(refusal)) => drop(joining.reply.send(Err(refusal))),
            (NamedBy::Operator(reply), stored) => drop(reply.send(stored)),
        }
    }

    fn joined(&mut self, Joining { member, created, reply, .. }: Joining) {
        LazyLock::force(&self.series);
        self.members.add(member);
        // A member whose caller has stopped waiting leaves when its subscription is dropped.
        let _ = reply.send(Ok(self.info(created)));
    }

    fn leave(&mut self, id: MemberId, departure: Departure, now: Instant) -> Result<(), Refusal> {
        self.take_back_unsent(id, |_| true);
        let member = self.members.remove(id).ok_or_else(Refusal::not_subscribed)?;
        let Some(owned) = self.partition.ownership.owned_mut() else { return Ok(()) };
        let held = owned.leases.leases_of(id);
        let end = match departure {
            Departure::Unsubscribed | Departure::ServerStopped => LeaseEnd::Released,
            Departure::Disconnected => match held[..] {
                [only] if member.isolation == Isolation::Alone(only) => LeaseEnd::DisconnectedAlone,
                _ => LeaseEnd::Disconnected,
            },
        };
        for seq in held {
            if let Some(ended) = owned.leases.end(seq, end, now) {
                owned.record_end(&ended, LOST_CONNECTIONS, None);
                let (tracer, delivery) = (self.tracer.as_ref(), (&self.name.group, seq));
                owned.spans.end(tracer, delivery, DeliveryEnd::MemberLeft, now);
            }
        }
        Ok(())
    }

    fn set_paused(&mut self, id: MemberId, paused: bool) -> Result<(), Refusal> {
        if paused {
            self.take_back_unsent(id, |_| true);
        }
        let member = self.members.get_mut(id).ok_or_else(Refusal::not_subscribed)?;
        member.is_paused = paused;
        Ok(())
    }

    /// Ends every subscription, because the group is deleted, and forgets everything about the group.
    pub(in crate::groups) fn end_members(&mut self, reason: EndReason) {
        let GroupName { topic, group, .. } = &self.name;
        self.members.end_all(topic, group, reason);
        let before = std::mem::take(&mut self.partition);
        if let Some(owned) = before.ownership.into_owned() {
            let refuse = |waiter: Waiter| waiter.refused(Refusal::not_subscribed());
            owned.pending.waiters.into_iter().for_each(refuse);
        }
        self.effects.clear();
    }

    /// Lets every member leave, because the server stops.
    pub(in crate::groups) fn dismiss_members(&mut self, now: Instant) {
        for id in self.members.ids() {
            // It is a member.
            let _ = self.leave(id, Departure::ServerStopped, now);
        }
    }

    pub(super) fn ack(&mut self, mut ack: Ack, publish: Option<PublishBatch>, now: Instant) {
        let Some(member) = self.members.get_mut(ack.member) else {
            return ack.answer(Err(Refusal::not_subscribed()));
        };
        let Some(owned) = self.partition.ownership.owned() else {
            if publish.is_none() {
                ack.owe_lookups(ack.ids.len(), &member.limit, now);
            }
            return ack_without_lease(ack, publish.is_some());
        };
        let is_leased = |id: &EventId| owned.leases.leased_to(ack.member, id).is_some();
        let Some(publish) = publish else { return self.acknowledge(ack, None, now) };
        if let Some(lost) = ack.ids.iter().find(|id| !is_leased(id)) {
            let refusal = lease_lost(lost);
            return ack.answer(Err(refusal));
        }
        if ack.mark_until.is_some() {
            self.effects.push_back(Effect::LookUpMarks(MarkLookup { ack, publish }));
        } else {
            self.acknowledge(ack, Some(publish), now);
        }
    }

    /// Continues after [`Effect::LookUpMarks`], with the first of the events that is marked already.
    pub(in crate::groups) fn marks_found(
        &mut self,
        MarkLookup { ack, publish }: MarkLookup,
        marked: Result<Option<EventId>, Refusal>,
        now: Instant,
    ) {
        match marked {
            Ok(None) => self.acknowledge(ack, Some(publish), now),
            Ok(Some(id)) => {
                let message = format!("{id} is marked as handled already: nothing was published");
                ack.answer(Err(Refusal::new(ErrorCode::Conflict, message)));
            }
            Err(refusal) => ack.answer(Err(refusal)),
        }
    }

    /// Ends the leases of the ids that are leased to the member, and marks those if the acknowledgement
    /// says so. The others are stale.
    fn acknowledge(&mut self, mut ack: Ack, publish: Option<PublishBatch>, now: Instant) {
        let (Some(member), Some(owned)) =
            (self.members.get_mut(ack.member), self.partition.ownership.owned_mut())
        else {
            return ack.answer(Err(Refusal::not_subscribed()));
        };
        let GroupName { topic, group, .. } = &self.name;
        let mut marks = ack.mark_until.map(|until| Marks::of(topic, group, until));
        let mut stale = Vec::new();
        let mut redelivered = BTreeSet::new();
        for (index, id) in ack.ids.iter().enumerate() {
            let Some(seq) = owned.leases.leased_to(ack.member, id) else {
                stale.push(index);
                continue;
            };
            if let Some(marks) = &mut marks {
                marks.add(id);
            }
            if owned.leases.deliveries(seq) > 1 {
                redelivered.insert(seq);
            }
            let leased_at = owned.leases.begin_ack(seq).map_or(now, |lease| lease.leased_at);
            owned.pending.acks.push((seq, now.saturating_duration_since(leased_at)));
            member.in_flight -= 1;
        }
        member.withdraw_unsent(&redelivered);
        ack.owe_lookups(stale.len(), &member.limit, now);
        if stale.len() == ack.ids.len() && publish.is_none() {
            return ack.answer(Ok(Acked { stale, published: vec![] }));
        }
        let publish = publish.unwrap_or_default();
        let published = publish.len();
        owned.pending.publish.append(publish);
        if let Some(marks) = marks {
            owned.pending.marks.append(marks);
        }
        owned.pending.waiters.push(Waiter::Ack { ack, stale, published });
    }

    /// Ends the leases of `ids`. Returns how many of them there were.
    fn nack(
        &mut self,
        id: MemberId,
        ids: &[EventId],
        reason: Option<&str>,
        next: AfterNack,
        now: Instant,
    ) -> Result<NackedLeases, Refusal> {
        let member = self.members.get_mut(id).ok_or_else(Refusal::not_subscribed)?;
        let mut nacked = NackedLeases { ended: 0, stale: 0 };
        let Some(owned) = self.partition.ownership.owned_mut() else {
            member.limit.owe_lookups(ids.len(), now);
            return Ok(NackedLeases { stale: ids.len(), ..nacked });
        };
        let end = match next {
            AfterNack::BackOff => LeaseEnd::Failed { delay: None },
            AfterNack::Delay(delay) => LeaseEnd::Failed { delay: Some(delay) },
            AfterNack::DeadLetter => LeaseEnd::GivenUp,
        };
        let mut redelivered = BTreeSet::new();
        for event in ids {
            let leased = owned.leases.leased_to(id, event);
            let Some(ended) = leased.and_then(|seq| owned.leases.end(seq, end, now)) else {
                nacked.stale += 1;
                continue;
            };
            nacked.ended += 1;
            if ended.attempts.deliveries > 1 {
                redelivered.insert(ended.seq);
            }
            member.in_flight -= 1;
            owned.record_end(&ended, "not acknowledged: nack without a reason", reason);
            let (tracer, delivery) = (self.tracer.as_ref(), (&self.name.group, ended.seq));
            owned.spans.end(tracer, delivery, DeliveryEnd::Nacked(reason), now);
        }
        member.withdraw_unsent(&redelivered);
        member.limit.owe_lookups(nacked.stale, now);
        self.series.nacked(nacked.ended);
        Ok(nacked)
    }

    fn answer_nack(&mut self, nacked: Result<NackedLeases, Refusal>, reply: Reply<Nacked>) {
        let answer = match (nacked, self.owned_mut()) {
            (Ok(NackedLeases { ended: 1.., stale }), Some(owned)) => {
                // Answered once it is stored.
                return owned.pending.waiters.push(Waiter::Nack { reply, stale: stale > 0 });
            }
            (Ok(NackedLeases { stale, .. }), _) => Ok(Nacked { stale: stale > 0 }),
            (Err(refusal), _) => Err(refusal),
        };
        // The receiver may have been dropped.
        let _ = reply.send(answer);
    }

    fn extend(&mut self, id: MemberId, event: &EventId, deadline: Instant) -> Result<(), Refusal> {
        if self.members.get_mut(id).is_none() {
            return Err(Refusal::not_subscribed());
        }
        let owned = self.owned_mut().ok_or_else(|| lease_lost(event))?;
        let seq = owned.leases.leased_to(id, event).ok_or_else(|| lease_lost(event))?;
        owned.leases.extend(seq, deadline);
        Ok(())
    }
}

/// Answers an acknowledgement of events that another gateway delivers now.
pub(super) fn ack_without_lease(ack: Ack, publishes: bool) {
    match ack.ids.first() {
        Some(id) if publishes => {
            let refusal = lease_lost(id);
            ack.answer(Err(refusal));
        }
        _ => {
            let stale = (0..ack.ids.len()).collect();
            ack.answer(Ok(Acked { stale, published: vec![] }));
        }
    }
}

/// Why an event is dead-lettered at the end of a connection.
const LOST_CONNECTIONS: &str = "the connection of its consumer was lost repeatedly while the event was in flight, \
                                in the end while nothing else was";

/// How many of the ids of a NACK were leased to the member.
struct NackedLeases {
    ended: usize,
    stale: usize,
}

pub(super) fn lease_lost(id: &EventId) -> Refusal {
    let message = format!("{id} is not leased to this subscription");
    Refusal::new(ErrorCode::LeaseLost, message)
}
