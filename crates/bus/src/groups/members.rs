//! The members of a group, and who gets the next event.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_proto::Seq;
use tokio::sync::Notify;

use crate::groups::leases::{LONGEST_TIME, MemberId};
use crate::groups::{Delivery, DeliveryQueue};
use crate::limits::Deficit;
use crate::limits::RateLimit;

/// One subscription of one connection.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) delivery_queue: Arc<DeliveryQueue>,
    /// The connection's limit, shared with its publishes.
    pub(crate) limit: RateLimit,
    pub(crate) max_in_flight: u32,
    pub(crate) ack_timeout: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) is_paused: bool,
    pub(crate) in_flight: u32,
    lending: Lending,
}

/// What a member can take while events are lent.
#[derive(Debug, Default)]
struct Lending {
    /// What its delivery_queue has set aside for it.
    reserved: usize,
    /// What is left of that.
    room: usize,
    deliveries: Vec<Delivery>,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    members: Vec<Member>,
    /// Who was last, so that equals take turns.
    last_turn: usize,
    /// When lending may go on that stopped for something else than room: a connection that ran out of
    /// tokens has one again, or this gateway may be trusted again.
    pub(super) lend_again_at: Option<Instant>,
}

impl Member {
    pub(crate) fn new(
        id: MemberId,
        (delivery_queue, limit): (Arc<DeliveryQueue>, RateLimit),
        max_in_flight: u32,
        ack_timeout: Duration,
        max_attempts: u32,
    ) -> Self {
        Self {
            id,
            delivery_queue,
            limit,
            max_in_flight,
            ack_timeout: ack_timeout.min(LONGEST_TIME),
            // Without any attempt every event would be a dead letter before it was delivered.
            max_attempts: max_attempts.max(1),
            is_paused: false,
            in_flight: 0,
            lending: Lending::default(),
        }
    }

    const fn credit(&self) -> u32 {
        if self.is_paused { 0 } else { self.max_in_flight.saturating_sub(self.in_flight) }
    }

    const fn can_take(&self) -> bool {
        self.credit() > 0 && self.lending.room > 0
    }

    /// A late answer to an earlier delivery can end the lease of one that still waits in the
    /// delivery_queue: that one is not to leave any more.
    pub(super) fn withdraw(&self, answered: &BTreeSet<Seq>) {
        if !answered.is_empty() {
            let is_answered = |waiting: &Delivery| {
                waiting.member == self.id && answered.contains(&waiting.event.seq)
            };
            self.limit.give_back(self.delivery_queue.take_back(is_answered).len() as u64);
        }
    }

    pub(super) fn lend(&mut self, delivery: Delivery) {
        self.in_flight += 1;
        self.lending.room = self.lending.room.saturating_sub(delivery.event.json_bytes());
        self.lending.deliveries.push(delivery);
    }
}

impl Members {
    pub(super) fn add(&mut self, member: Member) {
        self.members.push(member);
    }

    pub(super) fn remove(&mut self, id: MemberId) -> Option<Member> {
        let place = self.members.iter().position(|member| member.id == id)?;
        Some(self.members.remove(place))
    }

    pub(super) fn get_mut(&mut self, id: MemberId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    pub(super) fn ids(&self) -> Vec<MemberId> {
        self.members.iter().map(|member| member.id).collect()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Sees what each can take. Who has no room tells `room` when there is some.
    pub(super) fn begin_lending(&mut self, room: &Arc<Notify>) {
        for member in &mut self.members {
            let wants = member.credit() > 0;
            member.lending.reserved = if wants { member.delivery_queue.reserve(room) } else { 0 };
            member.lending.room = member.lending.reserved;
        }
    }

    pub(super) fn can_take(&self) -> bool {
        self.members.iter().any(Member::can_take)
    }

    /// Who gets the next event: the one with the most free credit; equals take turns. One token of
    /// its connection is taken.
    pub(super) fn pick(&mut self, now: Instant) -> Option<&mut Member> {
        let count = self.members.len();
        loop {
            let turn = (1..=count)
                .map(|step| (self.last_turn + step) % count)
                .filter(|place| self.members[*place].can_take())
                // Of equals, the first whose turn it is.
                .reduce(|best, place| {
                    let is_freer = self.members[place].credit() > self.members[best].credit();
                    if is_freer { place } else { best }
                })?;
            match self.members[turn].limit.try_consume(1, now) {
                Ok(()) => {
                    self.last_turn = turn;
                    return Some(&mut self.members[turn]);
                }
                Err(deficit) => {
                    self.members[turn].lending.room = 0;
                    if let Deficit::Wait(time) = deficit {
                        let at = now + time;
                        self.lend_again_at =
                            Some(self.lend_again_at.map_or(at, |known| known.min(at)));
                    }
                }
            }
        }
    }

    /// Sends what was lent on its way.
    pub(super) fn finish_lending(&mut self) {
        for member in &mut self.members {
            let Lending { reserved, deliveries, .. } = &mut member.lending;
            if *reserved > 0 {
                member.delivery_queue.put(std::mem::take(reserved), deliveries.drain(..));
            }
        }
    }
}
