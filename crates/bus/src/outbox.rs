//! What waits to be sent to one connection: bounded in bytes, filled by groups, emptied by the
//! connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prombus_proto::{Group, Topic};
use tokio::sync::Notify;

use crate::feed::FeedEvent;
use crate::leases::MemberId;

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
}

/// What waits to be sent to one connection.
#[derive(Debug)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    limit: usize,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// Groups that found no room, to be told when there is some.
    blocked: Vec<Arc<Notify>>,
}

impl Outbox {
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

    /// Takes deliveries, oldest first, up to about `bytes`, and at least one if there is one.
    pub fn take(&self, bytes: usize, out: &mut Vec<Delivery>) {
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
    }

    /// The room left, in bytes. Where there is none, `blocked` is told when there is.
    pub(crate) fn room(&self, blocked: &Arc<Notify>) -> usize {
        let mut waiting = self.waiting();
        let room = self.limit.saturating_sub(waiting.bytes);
        if room == 0 && !waiting.blocked.iter().any(|known| Arc::ptr_eq(known, blocked)) {
            waiting.blocked.push(Arc::clone(blocked));
        }
        room
    }

    pub(crate) fn put(&self, deliveries: impl Iterator<Item = Delivery>) {
        {
            let mut waiting = self.waiting();
            for delivery in deliveries {
                waiting.bytes += delivery.event.json_bytes();
                waiting.deliveries.push_back(delivery);
            }
        }
        self.filled.notify_one();
    }

    /// Takes out what waits for `member`, of what is `wanted`: it has not left.
    pub(crate) fn take_back(
        &self,
        member: MemberId,
        wanted: impl Fn(&Delivery) -> bool,
    ) -> Vec<Delivery> {
        let mut waiting = self.waiting();
        let (back, stay) = std::mem::take(&mut waiting.deliveries)
            .into_iter()
            .partition::<Vec<_>, _>(|delivery| delivery.member == member && wanted(delivery));
        waiting.deliveries = stay.into();
        waiting.bytes -= back.iter().map(|delivery| delivery.event.json_bytes()).sum::<usize>();
        self.tell_blocked(&mut waiting);
        back
    }

    fn tell_blocked(&self, waiting: &mut Waiting) {
        if waiting.bytes < self.limit.div_ceil(2) {
            waiting.blocked.drain(..).for_each(|group| group.notify_one());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
