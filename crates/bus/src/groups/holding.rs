//! How a group is held by one of several gateways: taken, given back, lost.

use std::sync::Arc;

use bytes::Bytes;
use prombus_engine::{CommitError, Durability, Expect, StateEntry, StateKey, StateOp, Version};
use prombus_proto::{ErrorCode, EventId, Timestamp};

use super::actor::{Actor, GroupContext, now};
use super::command::{Acked, Nacked};
use super::marking::marks_of_handled;
use super::round::{Ack, Waiter};
use super::serving::lease_lost;
use super::storing::submit;
use crate::error::Refusal;
use crate::publish::Submission;
use crate::sharing::GroupLeases;
use crate::stored::group_lease::GroupLease;
use crate::topics::StartAt;

/// What a gateway knows of a group that it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// Its group_lease's.
    pub(super) epoch: u64,
    /// The cursor that is stored. Nothing after a commit that has no clear answer.
    pub(super) cursor: Option<Version>,
}

impl Held {
    /// What has to be there when the next cursor is stored.
    pub(super) fn expect(&self) -> Expect {
        self.cursor.map_or(Expect::Absent, Expect::Version)
    }
}

impl Actor {
    /// Takes the group if nobody holds it, and waits for it otherwise.
    pub(super) async fn begin_among_others(
        &mut self,
        group_leases: &Arc<GroupLeases>,
        start: &StartAt,
    ) -> Result<(), Refusal> {
        if !self.try_to_hold(group_leases, start, None).await? {
            group_leases.wait_for(&self.topic.topic, &self.group, &self.lease_key);
        }
        Ok(())
    }

    /// Whoever held the group is gone, if its group_lease still is `gone`, or has given it back.
    pub(super) async fn take_over(&mut self, gone: Option<Version>) {
        let Some(group_leases) = self.ctx.group_leases.clone() else { return };
        if self.work.is_none() && !self.members.is_empty() {
            // Where a group was ever held there is a cursor, and so no start.
            match self.try_to_hold(&group_leases, &StartAt::Latest, gone).await {
                Ok(true) => {}
                // Whoever was first holds it, and is watched.
                Ok(false) => return,
                Err(refusal) => {
                    let (topic, group) = (&self.topic.topic, &self.group);
                    tracing::warn!(%topic, %group, "cannot take the group over: {refusal}");
                    return;
                }
            }
        }
        group_leases.wait_no_more(&self.topic.topic, &self.group);
    }

    /// Makes this the gateway that delivers the group, unless another one does.
    async fn try_to_hold(
        &mut self,
        group_leases: &GroupLeases,
        start: &StartAt,
        gone: Option<Version>,
    ) -> Result<bool, Refusal> {
        let gateway = group_leases.heartbeat.gateway();
        let stored = self.stored_lease().await?;
        let is_free = match &stored {
            Some((GroupLease { holder: Some(holder), .. }, version)) => {
                // One of our own is left where a commit like this one had no answer.
                holder == gateway || Some(*version) == gone
            }
            Some(_) | None => true,
        };
        if !is_free {
            return Ok(false);
        }
        if !group_leases.heartbeat.is_trusted(now()) {
            // Whoever holds a group has to be seen to live.
            let GroupContext { engine, clock, .. } = &self.ctx;
            group_leases.heartbeat.store(engine.as_ref(), clock.as_ref()).await?;
        }
        let (mut cursor, before) = match self.stored_cursor().await? {
            Some((cursor, version)) => (cursor, Expect::Version(version)),
            None => (self.new_cursor(start).await?, Expect::Absent),
        };
        let last = self.ctx.engine.bounds(&self.topic.topic).await?.last();
        let known = stored.as_ref().map_or(0, |(group_lease, _)| group_lease.epoch);
        let epoch = known.max(cursor.epoch.unwrap_or(0)) + 1;
        cursor.epoch = Some(epoch);
        let group_lease = GroupLease::of(gateway.clone(), epoch);
        let ops = vec![
            put_lease(&self.lease_key, &group_lease, stored.map(|(_, version)| version)),
            self.put(&cursor, before),
        ];
        self.may_hold = true;
        let submission = Submission::of_state(ops, Durability::Fsync);
        match submit(self.ctx.committer.clone(), submission).await {
            Ok(stored) => {
                self.held = Some(Held { epoch, cursor: Some(stored.version) });
                self.begin_work(&cursor, last);
                let (topic, group) = (&self.topic.topic, &self.group);
                tracing::info!(%topic, %group, epoch, "this gateway delivers the group");
                Ok(true)
            }
            Err(CommitError::Conflict(_)) => {
                self.may_hold = false;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn stored_lease(&mut self) -> Result<Option<(GroupLease, Version)>, Refusal> {
        let Some(stored) = self.ctx.engine.get(&self.lease_key).await? else {
            return Ok(None);
        };
        let StateEntry { value, version, .. } = stored;
        let group_lease =
            GroupLease::decode(&value).map_err(|error| self.unusable("group_lease", &error))?;
        Ok(Some((group_lease, version)))
    }

    /// Whether the group may be held here although nobody needs it any more.
    pub(super) fn has_to_be_released(&self) -> bool {
        self.may_hold
            && self.members.is_empty()
            && self.round.is_none()
            && self.retry_at.is_none()
            && self.work.as_ref().is_none_or(|work| work.pending.is_empty())
    }

    /// Gives the group back, so that others need not wait until this gateway is gone.
    pub(super) async fn release(&mut self) {
        match self.release_lease().await {
            Ok(()) => {
                self.work = None;
                self.held = None;
                self.may_hold = false;
            }
            Err(refusal) => self.storage_failed("give the group back", &refusal),
        }
    }

    async fn release_lease(&mut self) -> Result<(), Refusal> {
        let Some(group_leases) = self.ctx.group_leases.clone() else { return Ok(()) };
        let Some((group_lease, version)) = self.stored_lease().await? else { return Ok(()) };
        if group_lease.holder.as_ref() != Some(group_leases.heartbeat.gateway()) {
            return Ok(());
        }
        let free = GroupLease::of_nobody(group_lease.epoch);
        let put = put_lease(&self.lease_key, &free, Some(version));
        // Safe, or an election could make this gateway, which lives, the holder again.
        let submission = Submission::of_state(vec![put], Durability::Fsync);
        match submit(self.ctx.committer.clone(), submission).await {
            // Somebody else has it already.
            Ok(_) | Err(CommitError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the group is still held here, as its cursor says. If it is not, it is given up.
    pub(super) async fn is_still_held(&mut self) -> Result<bool, Refusal> {
        let stored = self.stored_cursor().await?;
        let Some(held) = &mut self.held else { return Ok(false) };
        match stored {
            // Only this gateway stores cursors of its epoch: an answer was lost, or an election took
            // back what was not safe yet.
            Some((cursor, version)) if cursor.epoch == Some(held.epoch) => {
                held.cursor = Some(version);
                Ok(true)
            }
            _ => {
                self.lose().await;
                Ok(false)
            }
        }
    }

    /// Another gateway holds the group: what was lent here is void.
    async fn lose(&mut self) {
        let (topic, group) = (&self.topic.topic, &self.group);
        tracing::warn!(%topic, %group, "another gateway delivers the group now");
        for id in self.members.ids() {
            let Some(member) = self.members.get_mut(id) else { continue };
            let unsent = member.delivery_queue.take_back(|delivery| delivery.member == id);
            member.limit.give_back(unsent.len() as u64);
            member.in_flight = 0;
        }
        self.held = None;
        self.may_hold = false;
        if let Some(group_leases) = &self.ctx.group_leases {
            group_leases.wait_for(&self.topic.topic, &self.group, &self.lease_key);
        }
        if let Some(work) = self.work.take() {
            self.answer_without_lease(work.pending.waiters).await;
        }
    }

    /// After a commit was refused because the cursor is not the one that was stored last.
    pub(super) async fn cursor_was_another(&mut self, waiters: Vec<Waiter>) {
        match self.is_still_held().await {
            Ok(true) => self.serve_again(waiters).await,
            Ok(false) => self.answer_without_lease(waiters).await,
            Err(refusal) => {
                self.storage_failed("look who delivers the group", &refusal);
                waiters.into_iter().for_each(|waiter| waiter.refused(refusal.clone()));
            }
        }
    }

    async fn serve_again(&mut self, waiters: Vec<Waiter>) {
        for waiter in waiters {
            match waiter {
                Waiter::Ack { ack, published: 0, .. } => self.ack(ack, None).await,
                Waiter::Ack { .. } => {
                    let message = "the cursor had to be read again; nothing was stored, try again";
                    waiter.refused(Refusal::new(ErrorCode::StorageUnavailable, message));
                }
                Waiter::Nack { .. } => {
                    if let Some(work) = &mut self.work {
                        work.pending.waiters.push(waiter);
                    }
                }
            }
        }
    }

    pub(super) async fn answer_without_lease(&mut self, waiters: Vec<Waiter>) {
        for waiter in waiters {
            match waiter {
                Waiter::Ack { ack, published, .. } => {
                    self.ack_without_lease(ack, published > 0).await;
                }
                Waiter::Nack { reply } => {
                    // Who is gone does not want the answer.
                    let _ = reply.send(Ok(Nacked { stale: true }));
                }
            }
        }
    }

    /// Answers an acknowledgement of what another gateway delivers. Marks are made nevertheless: the
    /// event was handled.
    pub(super) async fn ack_without_lease(&mut self, ack: Ack, publishes: bool) {
        let Ack { ids, mark_until, reply, .. } = ack;
        let answer = match (publishes, ids.first()) {
            (true, Some(id)) => Err(lease_lost(id)),
            _ => self
                .mark_handled(&ids, mark_until)
                .await
                .map(|()| Acked { stale: (0..ids.len()).collect(), published: vec![] }),
        };
        // Who is gone does not want the answer.
        let _ = reply.send(answer);
    }

    async fn mark_handled(
        &mut self,
        ids: &[EventId],
        mark_until: Option<Timestamp>,
    ) -> Result<(), Refusal> {
        let Some(until) = mark_until else { return Ok(()) };
        let (engine, topic, group) = (self.ctx.engine.as_ref(), &self.topic.topic, &self.group);
        let marks = marks_of_handled(engine, topic, group, until, ids, |_| false).await?;
        if !marks.is_empty() {
            let submission = Submission::of_state(marks.into_state(), self.topic.durability());
            submit(self.ctx.committer.clone(), submission).await?;
        }
        Ok(())
    }
}

fn put_lease(key: &StateKey, group_lease: &GroupLease, before: Option<Version>) -> StateOp {
    StateOp::Put {
        key: key.clone(),
        value: Bytes::from(group_lease.encode()),
        expires_at: None,
        expect: before.map_or(Expect::Absent, Expect::Version),
    }
}
