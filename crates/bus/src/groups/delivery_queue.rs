//! The deliveries that wait to be sent to one connection. Bounded in bytes; filled by groups, drained
//! by the connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prombus_proto::frame::EndReason;
use prombus_proto::{Group, Topic};
use tokio::sync::Notify;

use crate::groups::leases::MemberId;
use crate::memory::Share;
use crate::metrics::GroupSeries;
use crate::time::now;
use crate::topics::FeedEvent;

/// An event on lease to one subscription.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub member: MemberId,
    pub topic: Topic,
    pub group: Group,
    pub event: FeedEvent,
    /// Counts the deliveries of this event to this group, from 1.
    pub attempt: u32,
    /// The end of the lease.
    pub deadline: Instant,
    pub(crate) series: Arc<GroupSeries>,
}

/// A subscription that the bus has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSubscription {
    pub member: MemberId,
    pub topic: Topic,
    pub group: Group,
    pub reason: EndReason,
}

/// The delivery queue of one connection.
#[derive(Debug)]
pub struct DeliveryQueue {
    queued: Mutex<Queued>,
    /// Bytes.
    limit: usize,
    filled: Notify,
}

#[derive(Debug)]
struct Queued {
    deliveries: VecDeque<Delivery>,
    /// At most as many as the connection has subscriptions.
    ended: Vec<EndedSubscription>,
    bytes: usize,
    /// Bytes reserved by groups that are about to put deliveries in.
    reserved: usize,
    /// Its part of the budget of all connections, for `bytes` and `reserved`.
    share: Share,
    /// Groups that found no room, notified once half of the limit is free.
    blocked: Vec<Arc<Notify>>,
}

/// The most that one group reserves at a time: twice what it reads ahead.
const MAX_RESERVED_BYTES: usize = 512 << 10;

impl DeliveryQueue {
    /// Returns an empty queue for `limit` bytes, or less if other connections have most of the budget. An
    /// event that is larger than that fits if it is alone.
    #[must_use]
    pub fn new(limit: usize, share: Share) -> Self {
        let (deliveries, ended, blocked) = (VecDeque::new(), Vec::new(), Vec::new());
        let queued = Queued { deliveries, ended, bytes: 0, reserved: 0, share, blocked };
        Self { queued: Mutex::new(queued), limit, filled: Notify::new() }
    }

    /// Waits until a delivery is put in, or a subscription has ended.
    pub async fn filled(&self) {
        self.filled.notified().await;
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued.lock().deliveries.is_empty()
    }

    /// Moves deliveries to `out`, oldest first, until they have `bytes` in total. They count as delivered.
    pub fn take(&self, bytes: usize, out: &mut Vec<Delivery>) {
        let before = out.len();
        let mut queued = self.queued.lock();
        let mut moved = 0;
        while moved < bytes
            && let Some(delivery) = queued.deliveries.pop_front()
        {
            moved += delivery.event.json_bytes();
            queued.bytes -= delivery.queued_bytes();
            out.push(delivery);
        }
        if out.len() > before {
            queued.settle();
        }
        self.notify_blocked(&mut queued);
        drop(queued);
        if out.len() > before {
            GroupSeries::delivered(&out[before..], now());
        }
    }

    /// Tells the connection that one of its subscriptions has ended.
    pub(crate) fn end(&self, ended: EndedSubscription) {
        self.queued.lock().ended.push(ended);
        self.filled.notify_one();
    }

    /// Takes the subscriptions that have ended.
    pub fn take_ended(&self) -> Vec<EndedSubscription> {
        std::mem::take(&mut self.queued.lock().ended)
    }

    /// Reserves free room for one group, so that no two groups fill the same room, and returns its bytes.
    /// [`DeliveryQueue::put`] ends the reservation. If there is no room, `blocked` is notified when there is.
    pub(crate) fn reserve(&self, blocked: &Arc<Notify>) -> usize {
        let mut queued = self.queued.lock();
        let taken = queued.bytes + queued.reserved;
        let room = self.limit.saturating_sub(taken).min(MAX_RESERVED_BYTES);
        let room = if room > 0 { queued.share.grow_up_to(taken + room) } else { 0 };
        queued.reserved += room;
        if room == 0 && !queued.blocked.iter().any(|known| Arc::ptr_eq(known, blocked)) {
            queued.blocked.push(Arc::clone(blocked));
        }
        room
    }

    /// Puts in `deliveries`, which fit in the room that was `reserved`, and ends the reservation.
    pub(crate) fn put(&self, reserved: usize, deliveries: impl Iterator<Item = Delivery>) {
        let mut queued = self.queued.lock();
        let before = queued.deliveries.len();
        queued.reserved -= reserved;
        for delivery in deliveries {
            queued.bytes += delivery.queued_bytes();
            queued.deliveries.push_back(delivery);
        }
        queued.settle();
        self.notify_blocked(&mut queued);
        if queued.deliveries.len() > before {
            self.filled.notify_one();
        }
    }

    /// Removes the deliveries that match `wanted` and are not sent yet.
    pub(crate) fn take_back(&self, wanted: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let mut queued = self.queued.lock();
        let (back, stay) =
            std::mem::take(&mut queued.deliveries).into_iter().partition::<Vec<_>, _>(wanted);
        queued.deliveries = stay.into();
        queued.bytes -= back.iter().map(Delivery::queued_bytes).sum::<usize>();
        if !back.is_empty() {
            queued.settle();
        }
        self.notify_blocked(&mut queued);
        back
    }

    fn notify_blocked(&self, queued: &mut Queued) {
        if queued.bytes + queued.reserved < self.limit.div_ceil(2) {
            queued.blocked.drain(..).for_each(|group| group.notify_one());
        }
    }
}

impl Queued {
    /// Gives back what is not needed any more.
    fn settle(&mut self) {
        // More than was reserved, if the last event did not fit.
        self.share.set(self.bytes + self.reserved);
    }
}

impl Delivery {
    /// Returns the bytes that it takes in a queue.
    pub(crate) fn queued_bytes(&self) -> usize {
        size_of::<Self>() + self.event.json_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;

    #[tokio::test]
    async fn two_groups_never_reserve_the_same_room() {
        let delivery_queue = DeliveryQueue::new(1000, Budget::new(4000, 0).share());
        let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        assert_eq!(delivery_queue.reserve(&first), 1000);
        assert_eq!(delivery_queue.reserve(&second), 0);
        delivery_queue.put(1000, std::iter::empty());
        // Notified immediately: all room is free again.
        second.notified().await;
        assert_eq!(delivery_queue.reserve(&second), 1000);
    }
}
