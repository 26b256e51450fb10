//! The commands of members: join and leave, ACK, NACK and MODACK, pause and resume.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use prombus_proto::{ErrorCode, EventId};

use super::GroupState;
use super::effect::{Claim, Effect, Joining, MarkLookup};
use super::pending::{Ack, Waiter};
use crate::error::Refusal;
use crate::groups::command::{Acked, Command, Nacked, Reply};
use crate::groups::leases::{MemberId, back_off};
use crate::groups::members::Member;
use crate::publish::PublishBatch;
use crate::stored::mark::Marks;
use crate::topics::StartAt;

impl GroupState {
    pub(in crate::groups) fn handle(&mut self, command: Command, now: Instant) {
        // Every answer may find its receiver dropped.
        match command {
            Command::Join { member, start, reply } => self.join(member, start, reply),
            Command::Leave { member, why, reply } => {
                self.leave(member, why);
                if let Some(reply) = reply {
                    let _ = reply.send(Ok(()));
                }
            }
            Command::Ack { member, ids, mark_until, publish, charges, reply } => {
                self.ack(Ack { member, ids, mark_until, charges, reply }, publish, now);
            }
            Command::Nack { member, id, reason, delay, reply } => {
                self.nack(member, &id, reason.as_deref(), delay, reply, now);
            }
            Command::Extend { member, id, time, reply } => {
                let _ = reply.send(self.extend(member, &id, now + time));
            }
            Command::SetPaused { member, paused, reply } => {
                if paused {
                    self.take_back_unsent(member, |_| true);
                }
                if let Some(member) = self.members.get_mut(member) {
                    member.is_paused = paused;
                }
                let _ = reply.send(Ok(()));
            }
            Command::TakeOver { expired } => self.take_over(expired),
            Command::Describe { reply } => drop(reply.send(self.describe())),
            Command::Stop { .. } => unreachable!("the task stops the group itself"),
        }
    }

    fn join(&mut self, member: Member, start: StartAt, reply: Reply<()>) {
        let joining = Joining { member, start, reply };
        if self.owned().is_some() {
            self.joined(joining);
        } else if self.is_shared {
            self.effects.push_back(Effect::Claim(Claim::Join(joining)));
        } else {
            self.effects.push_back(Effect::Load(joining));
        }
    }

    pub(super) fn joined(&mut self, Joining { member, reply, .. }: Joining) {
        self.members.add(member);
        // A member whose caller has stopped waiting leaves when its subscription is dropped.
        let _ = reply.send(Ok(()));
    }

    fn leave(&mut self, id: MemberId, why: &'static str) {
        self.take_back_unsent(id, |_| true);
        let Some(member) = self.members.remove(id) else { return };
        let Some(owned) = self.owned_mut() else { return };
        for seq in owned.leases.leases_of(id) {
            let failed = owned.leases.fail(seq, member.max_attempts, None);
            owned.record_failure(failed, why);
        }
    }

    /// Lets every member leave, because the server stops.
    pub(in crate::groups) fn dismiss_members(&mut self) {
        for id in self.members.ids() {
            self.leave(id, "the server stopped");
        }
    }

    pub(super) fn ack(&mut self, ack: Ack, publish: Option<PublishBatch>, now: Instant) {
        if self.members.get_mut(ack.member).is_none() {
            return ack.answer(Err(not_subscribed()));
        }
        let Some(owned) = self.owned() else {
            return self.ack_without_lease(ack, publish.is_some());
        };
        let is_leased = |id: &EventId| owned.leases.leased_to(ack.member, id).is_some();
        if publish.is_some()
            && let Some(lost) = ack.ids.iter().find(|id| !is_leased(id))
        {
            let refusal = lease_lost(lost);
            return ack.answer(Err(refusal));
        }
        if ack.mark_until.is_some() {
            let leased = ack.ids.iter().map(is_leased).collect();
            self.effects.push_back(Effect::LookUpMarks(MarkLookup { ack, publish, leased }));
        } else {
            self.acknowledge(ack, publish, Marks::default(), now);
        }
    }

    /// Continues after [`Effect::LookUpMarks`].
    pub(in crate::groups) fn marks_found(
        &mut self,
        lookup: MarkLookup,
        marks: Result<Marks, Refusal>,
        now: Instant,
    ) {
        match marks {
            Ok(marks) => self.acknowledge(lookup.ack, lookup.publish, marks, now),
            Err(refusal) => lookup.ack.answer(Err(refusal)),
        }
    }

    fn acknowledge(&mut self, ack: Ack, publish: Option<PublishBatch>, marks: Marks, now: Instant) {
        let (Some(member), Some(owned)) =
            (self.members.get_mut(ack.member), self.partition.ownership.owned_mut())
        else {
            return ack.answer(Err(not_subscribed()));
        };
        let mut stale = Vec::new();
        let mut redelivered = BTreeSet::new();
        for (index, id) in ack.ids.iter().enumerate() {
            let Some(seq) = owned.leases.leased_to(ack.member, id) else {
                stale.push(index);
                continue;
            };
            if owned.leases.attempts(seq) > 1 {
                redelivered.insert(seq);
            }
            let leased_at = owned.leases.begin_ack(seq).map_or(now, |lease| lease.leased_at);
            owned.pending.acks.push((seq, now.saturating_duration_since(leased_at)));
            member.in_flight -= 1;
        }
        member.withdraw_unsent(&redelivered);
        if stale.len() == ack.ids.len() && publish.is_none() && marks.is_empty() {
            return ack.answer(Ok(Acked { stale, published: vec![] }));
        }
        let publish = publish.unwrap_or_default();
        let published = publish.len();
        owned.pending.publish.append(publish);
        owned.pending.marks.append(marks);
        owned.pending.waiters.push(Waiter::Ack { ack, stale, published });
    }

    fn nack(
        &mut self,
        id: MemberId,
        event: &EventId,
        reason: Option<&str>,
        delay: Option<Duration>,
        reply: Reply<Nacked>,
        now: Instant,
    ) {
        let Some(member) = self.members.get_mut(id) else {
            let _ = reply.send(Err(not_subscribed()));
            return;
        };
        let leased = self.partition.ownership.owned_mut().and_then(|owned| {
            let seq = owned.leases.leased_to(id, event)?;
            Some((owned, seq))
        });
        let Some((owned, seq)) = leased else {
            let _ = reply.send(Ok(Nacked { stale: true }));
            return;
        };
        let attempts = owned.leases.attempts(seq);
        if attempts > 1 {
            member.withdraw_unsent(&BTreeSet::from([seq]));
        }
        let delay = delay.unwrap_or_else(|| back_off(attempts));
        let failed = owned.leases.fail(seq, member.max_attempts, Some(now + delay));
        member.in_flight -= 1;
        owned.record_failure(failed, reason.unwrap_or("not acknowledged: nack without a reason"));
        owned.pending.waiters.push(Waiter::Nack { reply });
        self.series.nacked();
    }

    fn extend(&mut self, id: MemberId, event: &EventId, deadline: Instant) -> Result<(), Refusal> {
        if self.members.get_mut(id).is_none() {
            return Err(not_subscribed());
        }
        let owned = self.owned_mut().ok_or_else(|| lease_lost(event))?;
        let seq = owned.leases.leased_to(id, event).ok_or_else(|| lease_lost(event))?;
        owned.leases.extend(seq, deadline);
        Ok(())
    }

    /// Answers an acknowledgement of events that another gateway delivers now. Marks are stored all the
    /// same: the events were handled.
    pub(super) fn ack_without_lease(&mut self, ack: Ack, publishes: bool) {
        match ack.ids.first() {
            Some(id) if publishes => {
                let refusal = lease_lost(id);
                ack.answer(Err(refusal));
            }
            _ if ack.mark_until.is_some() => self.effects.push_back(Effect::MarkWithoutLease(ack)),
            _ => {
                let stale = (0..ack.ids.len()).collect();
                ack.answer(Ok(Acked { stale, published: vec![] }));
            }
        }
    }
}

pub(super) fn lease_lost(id: &EventId) -> Refusal {
    let message = format!("{id} is not leased to this subscription");
    Refusal::new(ErrorCode::LeaseLost, message)
}

fn not_subscribed() -> Refusal {
    Refusal::new(ErrorCode::NotSubscribed, "this connection does not subscribe to that group")
}
