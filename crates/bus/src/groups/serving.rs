//! What a group does when it is asked.

use std::collections::BTreeSet;
use std::time::Duration;

use prombus_engine::{Expect, Version};
use prombus_proto::{ErrorCode, EventId, Seq};

use super::actor::{Actor, Work, now};
use super::command::{Acked, Command, Description, Nacked, Reply};
use super::marking::{first_marks, marks_of_handled};
use super::members::Member;
use super::reading::Fetched;
use super::round::{Ack, Pending, Waiter};
use super::storing::submit;
use crate::error::Refusal;
use crate::groups::Delivery;
use crate::groups::leases::{Leases, MemberId, back_off};
use crate::publish::PublishBatch;
use crate::publish::Submission;
use crate::stored::cursor::Cursor;
use crate::stored::mark::Marks;
use crate::topics::StartAt;

impl Actor {
    pub(super) async fn serve(&mut self, command: Command) {
        match command {
            Command::Join { member, start, reply } => {
                let joined = self.join(member, start).await;
                // Who is gone leaves by itself.
                let _ = reply.send(joined);
            }
            Command::Leave { member, why, reply } => {
                self.leave(member, why);
                if let Some(reply) = reply {
                    let _ = reply.send(Ok(()));
                }
            }
            Command::Ack { member, ids, mark_until, publish, reply } => {
                self.ack(Ack { member, ids, mark_until, reply }, publish).await;
            }
            Command::Nack { member, id, reason, rest, reply } => {
                self.nack(member, &id, reason.as_deref(), rest, reply);
            }
            Command::Extend { member, id, time, reply } => {
                let _ = reply.send(self.extend(member, &id, time));
            }
            Command::SetPaused { member, paused, reply } => {
                if paused {
                    self.take_back(member, |_| true);
                }
                if let Some(member) = self.members.get_mut(member) {
                    member.is_paused = paused;
                }
                let _ = reply.send(Ok(()));
            }
            Command::TakeOver { group_lease } => self.take_over(group_lease).await,
            Command::Describe { reply } => {
                let _ = reply.send(self.describe());
            }
            Command::Stop { .. } => unreachable!("stopping is taken out before"),
        }
    }

    async fn join(&mut self, member: Member, start: StartAt) -> Result<(), Refusal> {
        if self.work.is_none() {
            match self.ctx.group_leases.clone() {
                None => self.begin_alone(&start).await?,
                Some(group_leases) => self.begin_among_others(&group_leases, &start).await?,
            }
        }
        self.members.add(member);
        Ok(())
    }

    /// Takes up the group where nobody else can have it.
    async fn begin_alone(&mut self, start: &StartAt) -> Result<(), Refusal> {
        let cursor = match self.stored_cursor().await? {
            Some((cursor, _)) => cursor,
            None => {
                let cursor = self.new_cursor(start).await?;
                let put = self.put(&cursor, Expect::Any);
                let submission = Submission::of_state(vec![put], self.topic.durability());
                submit(self.ctx.committer.clone(), submission).await?;
                cursor
            }
        };
        let last = self.ctx.engine.bounds(&self.topic.topic).await?.last();
        self.begin_work(&cursor, last);
        Ok(())
    }

    /// Goes on behind `cursor`, on a topic that goes up to `last`.
    pub(super) fn begin_work(&mut self, cursor: &Cursor, last: Seq) {
        self.work = Some(Work {
            leases: Leases::resume(cursor),
            fetched: Fetched::up_to(last),
            pending: Pending::default(),
        });
    }

    /// What is stored of the group, if it was ever made, and which commit did.
    pub(super) async fn stored_cursor(&mut self) -> Result<Option<(Cursor, Version)>, Refusal> {
        let Some(stored) = self.ctx.engine.get(&self.key).await? else { return Ok(None) };
        let cursor =
            Cursor::decode(&stored.value).map_err(|error| self.unusable("cursor", &error))?;
        Ok(Some((cursor, stored.version)))
    }

    pub(super) async fn new_cursor(&mut self, start: &StartAt) -> Result<Cursor, Refusal> {
        let first = start.first(self.ctx.engine.as_ref(), &self.topic.topic).await?;
        Ok(Cursor::starting_behind(first.previous(), self.ctx.clock.now()))
    }

    /// The refusal of something stored that cannot be read.
    pub(super) fn unusable(&self, what: &str, error: &dyn std::fmt::Display) -> Refusal {
        let (topic, group) = (&self.topic.topic, &self.group);
        let message = format!("the {what} of {group} on {topic} {error}");
        tracing::error!("{message}");
        Refusal::new(ErrorCode::Internal, message)
    }

    pub(super) fn leave(&mut self, id: MemberId, why: &'static str) {
        self.take_back(id, |_| true);
        let Some(member) = self.members.remove(id) else { return };
        let Some(work) = &mut self.work else { return };
        for seq in work.leases.held_by(id) {
            let failed = work.leases.fail(seq, member.max_attempts, None);
            work.failed(failed, why);
        }
    }

    /// Takes back `which` of what has not left yet, as if it had not been lent.
    pub(super) fn take_back(&mut self, id: MemberId, which: impl Fn(&Delivery) -> bool) {
        let (Some(member), Some(work)) = (self.members.get_mut(id), &mut self.work) else { return };
        for delivery in
            member.delivery_queue.take_back(|delivery| delivery.member == id && which(delivery))
        {
            if work.leases.unlend(delivery.event.seq, id, delivery.attempt) {
                work.pending.changed = true;
                member.in_flight -= 1;
                member.limit.give_back(1);
            }
        }
    }

    pub(super) async fn ack(&mut self, ack: Ack, publish: Option<PublishBatch>) {
        let Ack { member: id, ref ids, mark_until, .. } = ack;
        let Some(member) = self.members.get_mut(id) else {
            let _ = ack.reply.send(Err(not_subscribed()));
            return;
        };
        let Some(work) = &mut self.work else {
            self.ack_without_lease(ack, publish.is_some()).await;
            return;
        };
        let is_lent = |event: &EventId| work.leases.lent_to(id, event).is_some();
        if publish.is_some()
            && let Some(lost) = ids.iter().find(|event| !is_lent(event))
        {
            let refusal = lease_lost(lost);
            let _ = ack.reply.send(Err(refusal));
            return;
        }
        let (engine, topic, group) = (&*self.ctx.engine, &self.topic.topic, &self.group);
        let marks = match mark_until {
            None => Ok(Marks::default()),
            Some(until) if publish.is_some() => first_marks(engine, topic, group, until, ids).await,
            Some(until) => marks_of_handled(engine, topic, group, until, ids, is_lent).await,
        };
        let marks = match marks {
            Ok(marks) => marks,
            Err(refusal) => {
                let _ = ack.reply.send(Err(refusal));
                return;
            }
        };
        let mut stale = Vec::new();
        let mut late = BTreeSet::new();
        let mut ended = false;
        let now = now();
        for (place, event) in ids.iter().enumerate() {
            match work.leases.lent_to(id, event) {
                Some(seq) => {
                    if work.leases.attempts(seq) > 1 {
                        late.insert(seq);
                    }
                    let lease = work.leases.begin_end(seq);
                    let since = lease.map_or(now, |lease| lease.lent_at);
                    work.pending.ending.push((seq, now.saturating_duration_since(since)));
                    member.in_flight -= 1;
                    ended = true;
                }
                None => stale.push(place),
            }
        }
        member.withdraw(&late);
        if !ended && publish.is_none() && marks.is_empty() {
            let _ = ack.reply.send(Ok(Acked { stale, published: vec![] }));
            return;
        }
        let publish = publish.unwrap_or_default();
        let published = publish.len();
        work.pending.publish.append(publish);
        work.pending.marks.append(marks);
        work.pending.waiters.push(Waiter::Ack { ack, stale, published });
    }

    fn nack(
        &mut self,
        id: MemberId,
        event: &EventId,
        reason: Option<&str>,
        rest: Option<Duration>,
        reply: Reply<Nacked>,
    ) {
        let Some(member) = self.members.get_mut(id) else {
            let _ = reply.send(Err(not_subscribed()));
            return;
        };
        let lent = self.work.as_mut().and_then(|work| {
            let seq = work.leases.lent_to(id, event)?;
            Some((work, seq))
        });
        let Some((work, seq)) = lent else {
            let _ = reply.send(Ok(Nacked { stale: true }));
            return;
        };
        let attempts = work.leases.attempts(seq);
        if attempts > 1 {
            member.withdraw(&BTreeSet::from([seq]));
        }
        let rest = rest.unwrap_or_else(|| back_off(attempts));
        let failed = work.leases.fail(seq, member.max_attempts, Some(now() + rest));
        member.in_flight -= 1;
        work.failed(failed, reason.unwrap_or("not acknowledged: nack without a reason"));
        self.series.nacked();
        work.pending.waiters.push(Waiter::Nack { reply });
    }

    fn extend(&mut self, id: MemberId, event: &EventId, time: Duration) -> Result<(), Refusal> {
        if self.members.get_mut(id).is_none() {
            return Err(not_subscribed());
        }
        let lent = self.work.as_mut().and_then(|work| {
            let seq = work.leases.lent_to(id, event)?;
            Some((work, seq))
        });
        let Some((work, seq)) = lent else { return Err(lease_lost(event)) };
        work.leases.extend(seq, now() + time);
        Ok(())
    }

    fn describe(&self) -> Description {
        let work = self.work.as_ref();
        Description {
            floor: work.map_or(Seq::ZERO, |work| work.leases.floor()),
            in_flight: work.map_or(0, |work| work.leases.in_flight()),
            members: self.members.ids().len(),
        }
    }
}

pub(super) fn lease_lost(id: &EventId) -> Refusal {
    let message = format!("{id} is not lent to this subscription (any more)");
    Refusal::new(ErrorCode::LeaseLost, message)
}

fn not_subscribed() -> Refusal {
    Refusal::new(ErrorCode::NotSubscribed, "this connection does not subscribe to that group")
}
