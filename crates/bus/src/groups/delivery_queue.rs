//! What waits to be sent to one connection: bounded in bytes, filled by groups, emptied by the
//! connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prombus_proto::{Group, Topic};
use tokio::sync::Notify;

use crate::groups::leases::MemberId;
use crate::metrics::GroupSeries;
use crate::topics::FeedEvent;

/// An event for one subscription.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Whose it is.
    pub member: MemberId,
    /// The subscription's topic.
    pub topic: Topic,
    /// The subscription's group.
    pub group: Group,
    /// The event.
    pub event: FeedEvent,
    /// Which delivery of this event to this group it is, from 1.
    pub attempt: u32,
    /// When the lease ends.
    pub deadline: Instant,
    pub(crate) series: Arc<GroupSeries>,
}

/// What waits to be sent to one connection.
#[derive(Debug)]
pub struct DeliveryQueue {
    waiting: Mutex<Waiting>,
    limit: usize,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// Room that groups have set aside for what they are about to put in.
    reserved: usize,
    /// Groups that found no room, to be told when there is some.
    blocked: Vec<Arc<Notify>>,
}

impl DeliveryQueue {
    /// An empty one that takes about `limit` bytes: as many events as fit, and one if none does.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { waiting: Mutex::default(), limit, filled: Notify::new() }
    }

    /// Waits until something was put in.
    pub async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting().deliveries.is_empty()
    }

    /// Takes deliveries, oldest first, until they have `bytes` together. They count as delivered.
    pub fn take(&self, bytes: usize, out: &mut Vec<Delivery>) {
        let before = out.len();
        let mut waiting = self.waiting();
        let mut taken = 0;
        while taken < bytes
            && let Some(delivery) = waiting.deliveries.pop_front()
        {
            taken += delivery.event.json_bytes();
            out.push(delivery);
        }
        waiting.bytes -= taken;
        self.tell_blocked(&mut waiting);
        drop(waiting);
        if out.len() > before {
            // Through the runtime, so that a test can move the time.
            let now = tokio::time::Instant::now().into_std();
            GroupSeries::delivered(&out[before..], now);
        }
    }

    /// Sets the room that is left aside, and answers how many bytes that is: the groups that fill
    /// one delivery_queue must not all count on the same room. [`DeliveryQueue::put`] gives it back. Where there
    /// is none, `blocked` is told when there is.
    pub(crate) fn reserve(&self, blocked: &Arc<Notify>) -> usize {
        let mut waiting = self.waiting();
        let room = self.limit.saturating_sub(waiting.bytes + waiting.reserved);
        waiting.reserved += room;
        if room == 0 && !waiting.blocked.iter().any(|known| Arc::ptr_eq(known, blocked)) {
            waiting.blocked.push(Arc::clone(blocked));
        }
        room
    }

    /// Puts in what fits in the room that was `reserved`, which is no longer.
    pub(crate) fn put(&self, reserved: usize, deliveries: impl Iterator<Item = Delivery>) {
        let mut waiting = self.waiting();
        let before = waiting.deliveries.len();
        waiting.reserved -= reserved;
        for delivery in deliveries {
            waiting.bytes += delivery.event.json_bytes();
            waiting.deliveries.push_back(delivery);
        }
        self.tell_blocked(&mut waiting);
        if waiting.deliveries.len() > before {
            self.filled.notify_one();
        }
    }

    /// Takes out what is `wanted` back: it has not left.
    pub(crate) fn take_back(&self, wanted: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let mut waiting = self.waiting();
        let (back, stay) =
            std::mem::take(&mut waiting.deliveries).into_iter().partition::<Vec<_>, _>(wanted);
        waiting.deliveries = stay.into();
        waiting.bytes -= back.iter().map(|delivery| delivery.event.json_bytes()).sum::<usize>();
        self.tell_blocked(&mut waiting);
        back
    }

    fn tell_blocked(&self, waiting: &mut Waiting) {
        if waiting.bytes + waiting.reserved < self.limit.div_ceil(2) {
            waiting.blocked.drain(..).for_each(|group| group.notify_one());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn groups_do_not_count_on_the_same_room() {
        let delivery_queue = DeliveryQueue::new(1000);
        let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        assert_eq!(delivery_queue.reserve(&first), 1000);
        assert_eq!(delivery_queue.reserve(&second), 0);
        delivery_queue.put(1000, std::iter::empty());
        // Told at once, for there is room again.
        second.notified().await;
        assert_eq!(delivery_queue.reserve(&second), 1000);
    }
}
