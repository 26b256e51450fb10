//! Memory that callers share, taken in steps.
//!
//! A caller may take as much as it leaves free. So one caller gets at most half of the memory, two get a third
//! each, and a new one always finds some. A request that needs more than its caller may take waits, and one
//! of them at a time has the turn: it takes what it needs beyond the shared memory. So requests that wait for
//! each other's memory still end, one after the other.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use prombus_bus::{MemoryGauge, Principal};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// How long a request may have the turn.
const TURN_TIME: Duration = Duration::from_secs(30);

pub(super) struct SharedMemory {
    state: Mutex<State>,
    /// Notified when memory or a caller's place in the queue becomes free.
    freed: Notify,
    turn: Semaphore,
    gauge: MemoryGauge,
}

struct State {
    free: usize,
    callers: HashMap<Principal, CallerState>,
}

#[derive(Default)]
struct CallerState {
    bytes: usize,
    /// One of its requests waits for the turn, or has it.
    is_queued: bool,
}

/// The memory of one request, which is free again when it is dropped.
pub(super) struct Room<'a> {
    memory: &'a SharedMemory,
    caller: Principal,
    /// Taken from the shared memory.
    bytes: usize,
    /// Taken beyond it.
    extra: usize,
    turn: Option<Turn<'a>>,
}

struct Turn<'a> {
    /// Dropped first: the next request gets the turn before this caller queues again.
    _permit: SemaphorePermit<'a>,
    _queued: Queued<'a>,
    ends_at: Instant,
}

/// The place of a caller in the queue for the turn.
struct Queued<'a> {
    memory: &'a SharedMemory,
    caller: Principal,
}

impl SharedMemory {
    pub(super) fn new(bytes: usize, gauge: MemoryGauge) -> Self {
        Self {
            state: Mutex::new(State { free: bytes, callers: HashMap::new() }),
            freed: Notify::new(),
            turn: Semaphore::new(1),
            gauge,
        }
    }

    /// Returns room without any memory yet.
    pub(super) const fn room(&self, caller: Principal) -> Room<'_> {
        Room { memory: self, caller, bytes: 0, extra: 0, turn: None }
    }

    /// Returns room with `bytes`, or `None` if the caller has to wait for them.
    pub(super) fn try_room(&self, caller: Principal, bytes: usize) -> Option<Room<'_>> {
        let mut room = self.room(caller);
        room.try_take(bytes).then_some(room)
    }

    fn try_take(&self, caller: &Principal, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let held = state.callers.get(caller).map_or(0, |caller| caller.bytes);
        let Some(left) = state.free.checked_sub(bytes).filter(|left| held + bytes <= *left) else {
            return false;
        };
        state.free = left;
        state.callers.entry(caller.clone()).or_default().bytes += bytes;
        true
    }

    fn give_back(&self, caller: &Principal, bytes: usize) {
        let mut state = self.state.lock();
        state.free += bytes;
        state.change(caller, |caller| caller.bytes -= bytes);
        drop(state);
        self.freed.notify_waiters();
    }

    /// Waits for the turn. A caller with many requests waits with one of them only.
    async fn turn<'a>(&'a self, caller: &Principal) -> Turn<'a> {
        loop {
            let freed = self.freed.notified();
            if let Some(queued) = self.queue(caller) {
                let permit = self.turn.acquire().await.expect("the semaphore is never closed");
                let ends_at = Instant::now() + TURN_TIME;
                return Turn { _permit: permit, _queued: queued, ends_at };
            }
            freed.await;
        }
    }

    fn queue<'a>(&'a self, caller: &Principal) -> Option<Queued<'a>> {
        let mut state = self.state.lock();
        let state = state.callers.entry(caller.clone()).or_default();
        let was_queued = std::mem::replace(&mut state.is_queued, true);
        (!was_queued).then(|| Queued { memory: self, caller: caller.clone() })
    }
}

impl State {
    /// Changes the state of a caller, and forgets it once it has nothing.
    fn change(&mut self, caller: &Principal, change: impl FnOnce(&mut CallerState)) {
        let state = self.callers.entry(caller.clone()).or_default();
        change(state);
        if state.bytes == 0 && !state.is_queued {
            self.callers.remove(caller);
        }
    }
}

impl Room<'_> {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + self.extra
    }

    /// Waits until the request has `bytes` in total.
    pub(super) async fn grow_to(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.bytes());
        if more == 0 {
            return;
        }
        let memory = self.memory;
        let caller = self.caller.clone();
        let mut turn = pin!(memory.turn(&caller));
        loop {
            let freed = memory.freed.notified();
            // With the turn, once the shared memory has room for all of it, the turn is passed on.
            if self.try_take(self.extra + more) {
                self.memory.gauge.sub(self.extra);
                self.extra = 0;
                self.turn = None;
                return;
            }
            if self.turn.is_none() {
                tokio::select! {
                    () = freed => continue,
                    next = &mut turn => self.turn = Some(next),
                }
            }
            self.extra += more;
            memory.gauge.add(more);
            return;
        }
    }

    /// Gives back what exceeds `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes().saturating_sub(bytes);
        let extra = surplus.min(self.extra);
        self.extra -= extra;
        self.memory.gauge.sub(extra);
        self.give_back(surplus - extra);
    }

    /// When the request has to be complete, while others may wait for its turn.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.turn.as_ref().map(|turn| turn.ends_at)
    }

    fn try_take(&mut self, bytes: usize) -> bool {
        let taken = self.memory.try_take(&self.caller, bytes);
        if taken {
            self.bytes += bytes;
            self.memory.gauge.add(bytes);
        }
        taken
    }

    fn give_back(&mut self, bytes: usize) {
        if bytes > 0 {
            self.bytes -= bytes;
            self.memory.gauge.sub(bytes);
            self.memory.give_back(&self.caller, bytes);
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.memory.state.lock().change(&self.caller, |caller| caller.is_queued = false);
        self.memory.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use futures_util::FutureExt;

    use super::*;

    fn memory(bytes: usize) -> SharedMemory {
        SharedMemory::new(bytes, MemoryGauge::default())
    }

    const A: Principal = Principal::of_address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    const B: Principal = Principal::of_address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));
    const C: Principal = Principal::of_address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3)));

    fn grown<'a>(memory: &'a SharedMemory, caller: Principal, bytes: usize) -> Room<'a> {
        let mut room = memory.room(caller);
        room.grow_to(bytes).now_or_never().expect("there is room");
        room
    }

    #[test]
    fn a_caller_takes_as_much_as_it_leaves_free() {
        let memory = memory(1200);
        assert!(memory.try_room(A, 601).is_none());
        let of_a = memory.try_room(A, 600).expect("half of it");
        assert!(memory.try_room(A, 1).is_none());
        assert!(memory.try_room(B, 301).is_none());
        let of_b = memory.try_room(B, 300).expect("half of the rest");
        let of_c = memory.try_room(C, 150).expect("half of the rest");
        assert_eq!(memory.gauge.get(), 1050);
        drop((of_a, of_b, of_c));
        assert_eq!(memory.gauge.get(), 0);
        assert!(memory.state.lock().callers.is_empty());
        drop(memory.try_room(C, 600).expect("everything is given back"));
    }

    #[test]
    fn one_request_at_a_time_takes_more_than_there_is() {
        let memory = memory(100);
        let mut one = grown(&memory, A, 50);
        one.grow_to(5000).now_or_never().expect("it has the turn");
        assert!(one.ends_at().is_some());
        let mut other = grown(&memory, B, 25);
        let mut growing = Box::pin(other.grow_to(5000));
        assert!(growing.as_mut().now_or_never().is_none(), "the turn is taken");
        drop(one);
        growing.now_or_never().expect("it has the turn now");
        assert_eq!(memory.gauge.get(), 5000);
        drop(other);
        assert_eq!(memory.gauge.get(), 0);
    }

    #[test]
    fn many_requests_of_a_caller_queue_as_one() {
        let memory = memory(100);
        let mut holder = grown(&memory, A, 50);
        holder.grow_to(200).now_or_never().expect("it has the turn");
        let mut more = [memory.room(A), memory.room(A)];
        let [second, third] = &mut more;
        let (mut second, mut third) = (pin!(second.grow_to(60)), pin!(third.grow_to(60)));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        let mut other = memory.room(B);
        let mut growing = Box::pin(other.grow_to(60));
        assert!(growing.as_mut().now_or_never().is_none());
        drop(holder);
        growing.now_or_never().expect("it is the first in the queue");
        assert!(second.as_mut().now_or_never().is_none());
        drop(other);
        let got = [second.now_or_never(), third.now_or_never()];
        assert_eq!(got, [Some(()), None], "one at a time");
    }

    #[test]
    fn a_turn_is_passed_on_once_the_shared_memory_suffices() {
        let memory = memory(100);
        let held = grown(&memory, A, 50);
        let mut other = grown(&memory, B, 25);
        other.grow_to(30).now_or_never().expect("it has the turn");
        assert!(other.ends_at().is_some());
        drop(held);
        other.grow_to(40).now_or_never().expect("there is room");
        assert_eq!((other.ends_at(), other.bytes(), memory.gauge.get()), (None, 40, 40));
        other.shrink_to(10);
        assert_eq!((other.bytes(), memory.gauge.get()), (10, 10));
    }
}
