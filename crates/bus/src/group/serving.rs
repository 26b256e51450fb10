//! What a group does when it is asked.

use std::collections::BTreeSet;
use std::time::Duration;

use prombus_proto::{ErrorCode, EventId, Seq, Timestamp};

use super::actor::{Actor, Work, now};
use super::command::{Acked, Command, Description, Nacked, Reply};
use super::marking::{first_marks, marks_of_handled};
use super::members::Member;
use super::reading::Fetched;
use super::round::{Pending, Waiter};
use super::storing::submit;
use crate::committer::Submission;
use crate::cursor::Cursor;
use crate::dedupe::Marks;
use crate::error::Refusal;
use crate::leases::{Leases, MemberId, back_off};
use crate::outbox::Delivery;
use crate::publish::Prepared;
use crate::start::StartAt;

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
                self.ack(member, &ids, mark_until, publish, reply).await;
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
            Command::Describe { reply } => {
                let _ = reply.send(self.describe());
            }
            Command::Stop { .. } => unreachable!("stopping is taken out before"),
        }
    }

    async fn join(&mut self, member: Member, start: StartAt) -> Result<(), Refusal> {
        if self.work.is_none() {
            let cursor = self.cursor_or_new(&start).await?;
            let last = self.around.engine.bounds(&self.topic.topic).await?.last();
            self.work = Some(Work {
                leases: Leases::resume(&cursor),
                fetched: Fetched::up_to(last),
                pending: Pending::default(),
            });
        }
        self.members.add(member);
        Ok(())
    }

    /// The stored cursor; of a new group, the one that was stored just now.
    async fn cursor_or_new(&mut self, start: &StartAt) -> Result<Cursor, Refusal> {
        let engine = &self.around.engine;
        if let Some(stored) = engine.get(&self.key).await? {
            return Cursor::decode(&stored.value).map_err(|error| {
                let (topic, group) = (&self.topic.topic, &self.group);
                let message = format!("the cursor of {group} on {topic} {error}");
                tracing::error!("{message}");
                Refusal::new(ErrorCode::Internal, message)
            });
        }
        let first = start.first(engine.as_ref(), &self.topic.topic).await?;
        let cursor = Cursor::starting_behind(first.previous(), self.around.clock.now());
        let submission = Submission::of_state(vec![self.put(&cursor)], self.topic.durability());
        submit(self.around.committer.clone(), submission).await?;
        Ok(cursor)
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
        for delivery in member.outbox.take_back(|delivery| delivery.member == id && which(delivery))
        {
            if work.leases.unlend(delivery.event.seq, id, delivery.attempt) {
                work.pending.changed = true;
                member.in_flight -= 1;
                member.limit.give_back(1);
            }
        }
    }

    async fn ack(
        &mut self,
        id: MemberId,
        ids: &[EventId],
        mark_until: Option<Timestamp>,
        publish: Option<Prepared>,
        reply: Reply<Acked>,
    ) {
        let (Some(member), Some(work)) = (self.members.get_mut(id), &mut self.work) else {
            let _ = reply.send(Err(not_subscribed()));
            return;
        };
        let is_lent = |event: &EventId| work.leases.lent_to(id, event).is_some();
        if publish.is_some()
            && let Some(lost) = ids.iter().find(|event| !is_lent(event))
        {
            let _ = reply.send(Err(lease_lost(lost)));
            return;
        }
        let (engine, topic, group) = (&*self.around.engine, &self.topic.topic, &self.group);
        let marks = match mark_until {
            None => Ok(Marks::default()),
            Some(until) if publish.is_some() => first_marks(engine, topic, group, until, ids).await,
            Some(until) => marks_of_handled(engine, topic, group, until, ids, is_lent).await,
        };
        let marks = match marks {
            Ok(marks) => marks,
            Err(refusal) => {
                let _ = reply.send(Err(refusal));
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
            let _ = reply.send(Ok(Acked { stale, published: vec![] }));
            return;
        }
        let publish = publish.unwrap_or_default();
        let published = publish.len();
        work.pending.publish.append(publish);
        work.pending.marks.append(marks);
        work.pending.waiters.push(Waiter::Ack { reply, stale, published });
    }

    fn nack(
        &mut self,
        id: MemberId,
        event: &EventId,
        reason: Option<&str>,
        rest: Option<Duration>,
        reply: Reply<Nacked>,
    ) {
        let (Some(member), Some(work)) = (self.members.get_mut(id), &mut self.work) else {
            let _ = reply.send(Err(not_subscribed()));
            return;
        };
        let Some(seq) = work.leases.lent_to(id, event) else {
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
        let work = self.work.as_mut().ok_or_else(not_subscribed)?;
        let Some(seq) = work.leases.lent_to(id, event) else {
            return Err(lease_lost(event));
        };
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

fn lease_lost(id: &EventId) -> Refusal {
    let message = format!("{id} is not lent to this subscription (any more)");
    Refusal::new(ErrorCode::LeaseLost, message)
}

fn not_subscribed() -> Refusal {
    Refusal::new(ErrorCode::NotSubscribed, "this connection does not subscribe to that group")
}
