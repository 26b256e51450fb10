//! How a group hands out events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::actor::{Actor, RETRY_TIME};
use super::round::Dying;
use crate::groups::Delivery;
use crate::groups::leases::Lease;
use crate::sharing::GroupLeases;

impl Actor {
    pub(super) fn expire_due_leases(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
        let Some(work) = &mut self.work else { return };
        let expired = work.leases.expire_due_leases(now);
        // What never left was no attempt, and is not to leave when somebody else has it.
        let late: BTreeSet<_> = expired.iter().map(|(_, id)| *id).collect();
        for id in late {
            self.take_back(id, |delivery| delivery.deadline <= now);
        }
        let Some(work) = &mut self.work else { return };
        for (seq, id) in expired {
            let member = self.members.get_mut(id);
            let max_attempts = member.as_ref().map_or(u32::MAX, |member| member.max_attempts);
            let failed = work.leases.fail(seq, max_attempts, None);
            if let (Some(member), Some(_)) = (member, failed) {
                member.in_flight -= 1;
            }
            work.failed(failed, "not acknowledged before its deadline");
        }
    }

    pub(super) async fn lend(&mut self, now: Instant) {
        let is_closing = self.ctx.is_closing.load(Ordering::Relaxed);
        self.members.lend_again_at = None;
        if self.work.is_none() || self.retry_at.is_some() || is_closing {
            return;
        }
        let is_doubted = |group_leases: &Arc<GroupLeases>| !group_leases.heartbeat.is_trusted(now);
        if self.ctx.group_leases.as_ref().is_some_and(is_doubted) {
            // Others may take this gateway for gone: what it lends now they might lend, too.
            self.members.lend_again_at = Some(now + RETRY_TIME);
            return;
        }
        self.members.begin_lending(&self.room);
        while self.members.can_take() {
            if !self.fetch().await {
                break;
            }
            let work = self.work.as_mut().expect("there is work while members are");
            let Some(event) = work.fetched.next(&work.leases) else { break };
            let (seq, attempts) = (event.seq, work.leases.attempts(event.seq));
            let Some(member) = self.members.pick(now) else { break };
            if attempts >= member.max_attempts {
                member.limit.give_back(1);
                work.leases.condemn(seq);
                work.fetched.take(seq);
                let error = "not acknowledged in the attempts it had".to_owned();
                work.pending.dying.push(Dying::new(Some(seq), error, attempts));
                continue;
            }
            let event = work.fetched.take(seq).expect("it was just there");
            let lease =
                Lease { member: member.id, lent_at: now, deadline: now + member.ack_timeout };
            let attempt = work.leases.lend(seq, &event.id, event.ts, lease);
            work.pending.changed = true;
            member.lend(Delivery {
                member: member.id,
                topic: self.topic.topic.clone(),
                group: self.group.clone(),
                event,
                attempt,
                deadline: lease.deadline,
                series: Arc::clone(&self.series),
            });
        }
        self.members.finish_lending();
    }

    /// Fetches until there is something to lend. Answers whether there is.
    async fn fetch(&mut self) -> bool {
        let work = self.work.as_mut().expect("there is work while members are");
        work.fetched.grew_to(*self.growth.borrow_and_update());
        let (engine, topic) = (&self.ctx.engine, &self.topic);
        let found = work.fetched.fetch(&mut work.leases, &mut work.pending, engine, topic).await;
        for id in work.leases.take_forgotten() {
            if let Some(member) = self.members.get_mut(id) {
                member.in_flight -= 1;
            }
        }
        match found {
            Ok(found) => found,
            Err(error) => {
                self.storage_failed("read", &error);
                false
            }
        }
    }
}
