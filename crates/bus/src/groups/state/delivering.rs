//! Which member gets which event, and what happens at a deadline.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use prombus_engine::Damaged;
use prombus_proto::Seq;

use super::effect::{Effect, ReadOutcome};
use super::fetched::Next;
use super::partition::OwnedPartition;
use super::pending::DeadLetterPending;
use super::{Conditions, DeliveryGate, GroupName, GroupState, RETRY_AFTER};
use crate::groups::leases::{Lease, LeaseEnd, MemberId};
use crate::groups::members::{Isolation, Reservation};
use crate::groups::{Delivery, Member};
use crate::metrics::GroupSeries;
use crate::spans::{DeliveryEnd, Tracer};
use crate::topics::FeedEvent;

impl GroupState {
    pub(super) fn expire_due_leases(&mut self, now: Instant) {
        let Some(owned) = self.owned_mut() else { return };
        let expired = owned.leases.expire_due_leases(now);
        // A delivery that has not left counts as no attempt, and must not leave once the event goes to
        // somebody else.
        let late: BTreeSet<_> = expired.iter().map(|(_, id)| *id).collect();
        for id in late {
            self.take_back_unsent(id, |delivery| delivery.deadline <= now);
        }
        let Some(owned) = self.partition.ownership.owned_mut() else { return };
        for (seq, id) in expired {
            let end = LeaseEnd::Failed { delay: None };
            let Some(ended) = owned.leases.end(seq, end, now) else { continue };
            if let Some(member) = self.members.get_mut(id) {
                member.in_flight -= 1;
            }
            owned.record_end(&ended, "not acknowledged before its deadline", None);
            let (tracer, delivery) = (self.tracer.as_ref(), (&self.name.group, seq));
            owned.spans.end(tracer, delivery, DeliveryEnd::DeadlineMissed, now);
        }
    }

    /// Takes back those unsent deliveries to a member that are `wanted`, as if they had not been leased.
    pub(super) fn take_back_unsent(&mut self, id: MemberId, wanted: impl Fn(&Delivery) -> bool) {
        let (Some(member), Some(owned)) =
            (self.members.get_mut(id), self.partition.ownership.owned_mut())
        else {
            return;
        };
        for delivery in member.take_back_unsent(wanted) {
            if owned.leases.revoke_unsent(delivery.event.seq, id, delivery.attempt) {
                owned.pending.cursor_changed = true;
                owned.spans.discard(delivery.event.seq);
                member.in_flight -= 1;
                member.limit.give_back(1);
            }
        }
    }

    /// Delivers until members can take no more or an event has to be read, which is the effect it returns.
    pub(super) fn deliver(&mut self, conditions: &Conditions) -> Option<Effect> {
        let effect = self.fill_members(conditions);
        let rest = match effect {
            Some(Effect::Read { .. }) => Reservation::Stays,
            _ => Reservation::Ends,
        };
        self.members.send_deliveries(rest);
        effect
    }

    fn fill_members(&mut self, conditions: &Conditions) -> Option<Effect> {
        self.members.deliver_again_at = None;
        if self.partition.retry_at.is_some() {
            return None;
        }
        if self.partition.ownership.is_unclear() {
            // Some of the events to redeliver may be done.
            return Some(Effect::ReadCursor(None));
        }
        let owned = self.partition.ownership.owned_mut()?;
        match conditions.gate {
            DeliveryGate::Open => {}
            DeliveryGate::Closing => return None,
            DeliveryGate::HeartbeatStale => {
                self.members.deliver_again_at = Some(conditions.now + RETRY_AFTER);
                return None;
            }
        }
        if owned.wants_redrives() {
            return Some(Effect::ReadRedrives);
        }
        owned.fetched.topic_grew(conditions.topic_end);
        self.members.reserve_room(&self.room);
        let mut read = self.deliver_alone(conditions.now);
        while read.is_none() && self.members.can_take() {
            let owned = self.partition.ownership.owned_mut().expect("only an owner delivers");
            match owned.fetched.next(&owned.leases) {
                Next::Event(seq) => {
                    if !self.deliver_one(seq, conditions.now) {
                        break;
                    }
                }
                Next::Read(from) => {
                    let events = owned.fetched.read_size(self.members.credit());
                    let letter = owned.leases.letter_of(from);
                    read = Some(Effect::Read { from, events, letter });
                    break;
                }
                Next::Nothing => break,
            }
        }
        read
    }

    /// Leases `seq` to the member whose turn it is. Returns `false` if none can take it.
    fn deliver_one(&mut self, seq: Seq, now: Instant) -> bool {
        let owned = self.partition.ownership.owned_mut().expect("only an owner delivers");
        let Some(member) = self.members.pick(now) else { return false };
        let event = owned.fetched.take(seq, now).expect("the event was fetched");
        let observed = (&*self.series, self.tracer.as_ref());
        lease_to(member, owned, &self.name, event, observed, now);
        true
    }

    /// Delivers the first event that has to be alone once a member has nothing else in flight. Returns the
    /// effect that reads it if it was not fetched.
    fn deliver_alone(&mut self, now: Instant) -> Option<Effect> {
        let owned = self.partition.ownership.owned_mut()?;
        let suspect = owned.leases.first_suspect();
        self.members.end_isolation(suspect.is_some());
        let seq = suspect?;
        if !self.members.set_one_apart() {
            return None;
        }
        if !owned.fetched.has_suspect(seq) {
            let letter = owned.leases.letter_of(seq);
            return Some(Effect::Read { from: seq, events: 1, letter });
        }
        let member = self.members.pick_apart(now)?;
        let event = owned.fetched.take_suspect(seq)?;
        member.isolation = Isolation::Alone(seq);
        let observed = (&*self.series, self.tracer.as_ref());
        lease_to(member, owned, &self.name, event, observed, now);
        None
    }

    /// Continues after [`Effect::Read`].
    pub(in crate::groups) fn events_read(&mut self, from: Seq, outcome: ReadOutcome, now: Instant) {
        let Some(owned) = self.partition.ownership.owned_mut() else { return };
        match outcome {
            ReadOutcome::Events(events) => owned.fetched.put(events, &owned.leases, now),
            ReadOutcome::NotYet => owned.fetched.ends_before(from),
            ReadOutcome::Trimmed(_) if owned.leases.letter_of(from).is_some() => {
                tracing::warn!(topic = %self.name.topic, group = %self.name.group, seq = %from,
                    "retention removed a redriven event and its dead letter; it is lost");
                owned.leases.give_up_redrive(from);
                owned.pending.cursor_changed = true;
            }
            ReadOutcome::Trimmed(first) => {
                tracing::warn!(topic = %self.name.topic, group = %self.name.group, %from,
                    to = %first.previous(), "retention removed events the group had not finished; \
                    it goes on behind them");
                owned.leases.trim_below(first);
                owned.pending.cursor_changed = true;
                for id in owned.leases.take_trimmed() {
                    if let Some(member) = self.members.get_mut(id) {
                        member.in_flight -= 1;
                    }
                }
            }
            ReadOutcome::Damaged(damaged) => skip_damaged(owned, from, &damaged),
            ReadOutcome::Failed(error) => self.storage_failed("read events", &error, now),
        }
    }
}

/// Leases `event` to `member`.
fn lease_to(
    member: &mut Member,
    owned: &mut OwnedPartition,
    name: &GroupName,
    event: FeedEvent,
    (series, tracer): (&Arc<GroupSeries>, Option<&Arc<Tracer>>),
    now: Instant,
) {
    let lease = Lease { member: member.id, leased_at: now, deadline: now + member.ack_timeout };
    let attempt = owned.leases.lease(event.seq, &event.id, event.ts, lease);
    owned.pending.cursor_changed = true;
    if let Some(tracer) = tracer {
        owned.spans.forget_up_to(owned.leases.floor(), owned.leases.in_flight());
        owned.spans.start(tracer, (&name.topic, &event), attempt, now);
    }
    member.deliver(Delivery {
        member: member.id,
        topic: name.topic.clone(),
        group: name.group.clone(),
        event,
        attempt,
        deadline: lease.deadline,
        series: Arc::clone(series),
    });
}

/// Gives up on events from `from` on that cannot be read back; a dead letter says so.
fn skip_damaged(owned: &mut OwnedPartition, from: Seq, damaged: &Damaged) {
    tracing::error!("a group skips events that it cannot read: {damaged}");
    let error = damaged.to_string();
    let leases = &mut owned.leases;
    let letter = match damaged {
        _ if leases.is_redeliverable(from) => {
            let attempts = leases.deliveries(from);
            leases.dead_letter(from);
            let copy = leases.letter_of(from);
            DeadLetterPending { copy, ..DeadLetterPending::of(from, error, attempts) }
        }
        Damaged::Events { last, .. } => {
            leases.skip_unreadable(*last);
            DeadLetterPending::of_unreadable(error)
        }
        Damaged::State(_) => {
            leases.skip_unreadable(leases.next_new());
            DeadLetterPending::of_unreadable(error)
        }
    };
    owned.pending.dead_letters.push(letter);
}
