//! The members of a group, and which of them gets the next event.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_proto::frame::EndReason;
use prombus_proto::{Group, Seq, Topic};
use tokio::sync::Notify;

use crate::groups::leases::{MAX_LEASE, MemberId};
use crate::groups::{Delivery, DeliveryQueue, EndedSubscription, MemberDetails, WhyUnfinished};
use crate::limits::{ConnectionLimit, Deficit};

/// One subscription of one connection. It begins paused.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: MemberId,
    delivery_queue: Arc<DeliveryQueue>,
    /// The connection's limit, shared with its publishes.
    pub(crate) limit: ConnectionLimit,
    max_in_flight: u32,
    pub(crate) ack_timeout: Duration,
    pub(crate) is_paused: bool,
    pub(super) isolation: Isolation,
    pub(crate) in_flight: u32,
    outgoing: Outgoing,
}

/// Whether a member is set apart for an event that is delivered alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Isolation {
    #[default]
    None,
    /// Nothing is delivered to the member until nothing is in flight to it.
    Draining,
    /// This event is the only one in flight to the member.
    Alone(Seq),
}

/// The deliveries to a member that are sent together.
#[derive(Debug, Default)]
struct Outgoing {
    /// Bytes that the member's delivery queue has reserved for them.
    reserved: usize,
    /// Bytes of the reservation that are left.
    room: usize,
    deliveries: Vec<Delivery>,
}

/// What becomes of the room that is reserved in delivery queues and not used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservation {
    /// It stays while events are read, so that no more groups read for a connection than its queue has room
    /// for.
    Stays,
    Ends,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    members: Vec<Member>,
    /// The member that was picked last, so that equals take turns.
    last_picked: usize,
    /// When to deliver again after a connection ran out of tokens or this gateway's heartbeat was stale.
    pub(super) deliver_again_at: Option<Instant>,
}

impl Member {
    pub(crate) fn new(
        id: MemberId,
        (delivery_queue, limit): (Arc<DeliveryQueue>, ConnectionLimit),
        max_in_flight: u32,
        ack_timeout: Duration,
    ) -> Self {
        Self {
            id,
            delivery_queue,
            limit,
            max_in_flight,
            ack_timeout: ack_timeout.min(MAX_LEASE),
            is_paused: true,
            isolation: Isolation::None,
            in_flight: 0,
            outgoing: Outgoing::default(),
        }
    }

    const fn credit(&self) -> u32 {
        if self.is_paused { 0 } else { self.max_in_flight.saturating_sub(self.in_flight) }
    }

    const fn can_take(&self) -> bool {
        matches!(self.isolation, Isolation::None) && self.has_room()
    }

    const fn has_room(&self) -> bool {
        self.credit() > 0 && self.outgoing.room > 0
    }

    pub(super) fn deliver(&mut self, delivery: Delivery) {
        self.in_flight += 1;
        self.outgoing.room = self.outgoing.room.saturating_sub(delivery.queued_bytes());
        self.outgoing.deliveries.push(delivery);
    }

    /// Moves its deliveries into its queue. The rest of the reservation stays or ends.
    fn send(&mut self, rest: Reservation) {
        let Outgoing { reserved, room, deliveries } = &mut self.outgoing;
        let stays = match rest {
            Reservation::Stays => *room,
            Reservation::Ends => 0,
        };
        if *reserved > stays {
            self.delivery_queue.put(*reserved - stays, deliveries.drain(..));
            *reserved = stays;
        }
    }

    /// Takes those deliveries that are `wanted` back from the connection's queue.
    pub(super) fn take_back_unsent(&self, wanted: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let id = self.id;
        self.delivery_queue.take_back(|delivery| delivery.member == id && wanted(delivery))
    }

    /// Drops unsent redeliveries of `answered`: the answer to an earlier delivery came late and ended the
    /// lease of the next one, which must not leave any more.
    pub(super) fn withdraw_unsent(&self, answered: &BTreeSet<Seq>) {
        if !answered.is_empty() {
            let unsent = self.take_back_unsent(|delivery| answered.contains(&delivery.event.seq));
            self.limit.give_back(unsent.len() as u64);
        }
    }
}

impl Members {
    pub(super) fn add(&mut self, member: Member) {
        self.members.push(member);
    }

    pub(super) fn remove(&mut self, id: MemberId) -> Option<Member> {
        let index = self.members.iter().position(|member| member.id == id)?;
        Some(self.members.remove(index))
    }

    pub(super) fn get_mut(&mut self, id: MemberId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    pub(super) fn ids(&self) -> Vec<MemberId> {
        self.members.iter().map(|member| member.id).collect()
    }

    pub(super) const fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Ends all leases of all members, and drops their unsent deliveries.
    pub(super) fn revoke_all(&mut self) {
        for member in &mut self.members {
            let unsent = member.take_back_unsent(|_| true);
            member.limit.give_back(unsent.len() as u64);
            member.in_flight = 0;
        }
    }

    /// Removes all members and tells their connections why. Nothing more is delivered to them.
    pub(super) fn end_all(&mut self, topic: &Topic, group: &Group, reason: EndReason) {
        self.revoke_all();
        for member in self.members.drain(..) {
            let (id, topic, group) = (member.id, topic.clone(), group.clone());
            let ended = EndedSubscription { member: id, topic, group, reason };
            // Before the notice: what is not sent by then is dropped with the member.
            let delivery_queue = Arc::clone(&member.delivery_queue);
            drop(member);
            delivery_queue.take_back(|delivery| delivery.member == id);
            delivery_queue.end(ended);
        }
    }

    /// Reserves room in the queue of every member that wants events, unless it has some reserved. A queue
    /// without room notifies `room` when it has some again.
    pub(super) fn reserve_room(&mut self, room: &Arc<Notify>) {
        for member in &mut self.members {
            if member.credit() == 0 {
                member.send(Reservation::Ends);
            } else if member.outgoing.reserved == 0 {
                member.outgoing.reserved = member.delivery_queue.reserve(room);
            }
            member.outgoing.room = member.outgoing.reserved;
        }
    }

    pub(super) fn details(&self) -> Vec<MemberDetails> {
        let details = self.members.iter().map(|member| MemberDetails {
            principal: member.limit.principal(),
            in_flight: member.in_flight,
            max_in_flight: member.max_in_flight,
            ack_timeout: member.ack_timeout,
            is_paused: member.is_paused,
        });
        details.collect()
    }

    /// Returns why an event that could be delivered is not, as of the last turn.
    pub(super) fn why_nothing_is_taken(&self) -> WhyUnfinished {
        if self.members.is_empty() {
            WhyUnfinished::NoMembers
        } else if self.members.iter().all(|member| member.is_paused) {
            WhyUnfinished::Paused
        } else if self.can_take() {
            WhyUnfinished::Ready
        } else {
            WhyUnfinished::MembersBusy
        }
    }

    pub(super) fn can_take(&self) -> bool {
        self.members.iter().any(Member::can_take)
    }

    /// Returns how many events those members may take that have room for any.
    pub(super) fn credit(&self) -> usize {
        let able = self.members.iter().filter(|member| member.can_take());
        able.map(|member| member.credit() as usize).sum()
    }

    /// Picks the member with the most free credit, in turn among equals, and takes a token from its
    /// connection.
    pub(super) fn pick(&mut self, now: Instant) -> Option<&mut Member> {
        loop {
            let picked = self
                .in_turn()
                .filter(|index| self.members[*index].can_take())
                // Of equals, the first one after the last picked.
                .reduce(|best, index| {
                    let is_freer = self.members[index].credit() > self.members[best].credit();
                    if is_freer { index } else { best }
                })?;
            if self.take_token(picked, now) {
                return Some(&mut self.members[picked]);
            }
        }
    }

    /// The indexes of all members, beginning behind the last picked.
    fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, last) = (self.members.len(), self.last_picked);
        (1..=count).map(move |step| (last + step) % count)
    }

    /// Takes a token for a delivery to the member at `index`. Without one, the member gets nothing more in
    /// this turn.
    fn take_token(&mut self, index: usize, now: Instant) -> bool {
        match self.members[index].limit.try_deliver(1, now) {
            Ok(()) => {
                self.last_picked = index;
                true
            }
            Err(deficit) => {
                self.members[index].outgoing.room = 0;
                if let Deficit::Wait(time) = deficit {
                    let at = now + time;
                    self.deliver_again_at =
                        Some(self.deliver_again_at.map_or(at, |known| known.min(at)));
                }
                false
            }
        }
    }

    /// Sets one member apart for an event that is delivered alone, unless one is already. Returns `true` if
    /// that member can take the event now.
    pub(super) fn set_one_apart(&mut self) -> bool {
        if self.apart().is_none() {
            // One that waits already, or else the one that will soonest.
            let candidates = self.in_turn().filter(|index| !self.members[*index].is_paused);
            let fewest = candidates.min_by_key(|index| {
                let member = &self.members[*index];
                (member.in_flight, !member.has_room())
            });
            let Some(fewest) = fewest else { return false };
            self.members[fewest].isolation = Isolation::Draining;
        }
        self.apart().is_some_and(|index| {
            let member = &self.members[index];
            member.in_flight == 0 && member.has_room()
        })
    }

    /// Picks the member that is set apart and takes a token from its connection.
    pub(super) fn pick_apart(&mut self, now: Instant) -> Option<&mut Member> {
        let index = self.apart()?;
        self.take_token(index, now).then(|| &mut self.members[index])
    }

    /// Lets members that were set apart take any events again, once nothing waits to be delivered alone.
    pub(super) fn end_isolation(&mut self, has_suspects: bool) {
        for member in &mut self.members {
            let is_over = match member.isolation {
                Isolation::None => false,
                Isolation::Draining => member.is_paused || !has_suspects,
                Isolation::Alone(_) => member.in_flight == 0,
            };
            if is_over {
                member.isolation = Isolation::None;
            }
        }
    }

    fn apart(&self) -> Option<usize> {
        self.members.iter().position(|member| member.isolation != Isolation::None)
    }

    /// Moves the deliveries into the members' queues.
    pub(super) fn send_deliveries(&mut self, rest: Reservation) {
        self.members.iter_mut().for_each(|member| member.send(rest));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.send(Reservation::Ends);
    }
}
