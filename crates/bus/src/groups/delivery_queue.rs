//! The deliveries that wait to be sent to one connection. Bounded in bytes; filled by groups, drained
//! by the connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prombus_proto::{Group, Topic};
use tokio::sync::Notify;

use crate::groups::leases::MemberId;
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

/// The delivery queue of one connection.
#[derive(Debug)]
pub struct DeliveryQueue {
    queued: Mutex<Queued>,
    /// Bytes.
    limit: usize,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Queued {
    deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// Bytes reserved by groups that are about to put deliveries in.
    reserved: usize,
    /// Groups that found no room, notified once half of the limit is free.
    blocked: Vec<Arc<Notify>>,
}

impl DeliveryQueue {
    /// Returns an empty queue for `limit` bytes. An event that is larger than that fits if it is alone.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { queued: Mutex::default(), limit, filled: Notify::new() }
    }

    /// Waits until a delivery is put in.
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
            out.push(delivery);
        }
        queued.bytes -= moved;
        self.notify_blocked(&mut queued);
        drop(queued);
        if out.len() > before {
            GroupSeries::delivered(&out[before..], now());
        }
    }

    /// Reserves all free room for one group, so that no two groups fill the same room, and returns its
    /// bytes. [`DeliveryQueue::put`] ends the reservation. If there is no room, `blocked` is notified
    /// when there is.
    pub(crate) fn reserve(&self, blocked: &Arc<Notify>) -> usize {
        let mut queued = self.queued.lock();
        let room = self.limit.saturating_sub(queued.bytes + queued.reserved);
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
            queued.bytes += delivery.event.json_bytes();
            queued.deliveries.push_back(delivery);
        }
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
        queued.bytes -= back.iter().map(|delivery| delivery.event.json_bytes()).sum::<usize>();
        self.notify_blocked(&mut queued);
        back
    }

    fn notify_blocked(&self, queued: &mut Queued) {
        if queued.bytes + queued.reserved < self.limit.div_ceil(2) {
            queued.blocked.drain(..).for_each(|group| group.notify_one());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_groups_never_reserve_the_same_room() {
        let delivery_queue = DeliveryQueue::new(1000);
        let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        assert_eq!(delivery_queue.reserve(&first), 1000);
        assert_eq!(delivery_queue.reserve(&second), 0);
        delivery_queue.put(1000, std::iter::empty());
        // Notified immediately: all room is free again.
        second.notified().await;
        assert_eq!(delivery_queue.reserve(&second), 1000);
    }
}
