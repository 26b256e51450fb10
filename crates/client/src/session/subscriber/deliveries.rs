//! The events a subscription holds, from delivery until the server has confirmed the result.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use prombus_proto::EventId;

use crate::consuming::received::Delivery;
use crate::session::requests::earlier;

/// The server extends a lease by at least this.
const MIN_EXTENSION: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Deliveries {
    events: HashMap<EventId, InFlight>,
    /// May contain events that were removed since, because their lease was lost.
    ready: VecDeque<EventId>,
    running: usize,
    /// The longest lease seen so far; extensions ask for as much.
    lease: Duration,
    next_extension: Option<Instant>,
}

#[derive(Debug)]
struct InFlight {
    delivery: Delivery,
    stage: Stage,
    /// `None` if the lease is lost.
    extend_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Unchecked,
    Ready,
    Running,
    Settling {
        /// The event was delivered again before its result was confirmed, so the result has to be
        /// sent again.
        is_redelivered: bool,
    },
}

impl Deliveries {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            events: HashMap::new(),
            ready: VecDeque::new(),
            running: 0,
            lease,
            next_extension: None,
        }
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// How long a lease extension asks for.
    pub(super) fn extension(&self) -> Duration {
        self.lease.max(MIN_EXTENSION)
    }

    /// Renews the lease of an event that is here already. Returns `false` if it is not.
    pub(super) fn redelivered(
        &mut self,
        id: &EventId,
        attempt: u32,
        time_left: Duration,
        now: Instant,
    ) -> bool {
        self.lease = self.lease.max(time_left);
        let Some(event) = self.events.get_mut(id) else { return false };
        let extend_at = extend_at(time_left, now);
        event.extend_at = Some(extend_at);
        if let Stage::Settling { is_redelivered } = &mut event.stage {
            *is_redelivered = true;
        }
        event.delivery.attempt = attempt;
        event.delivery.lease.regain();
        self.next_extension = earlier(self.next_extension, Some(extend_at));
        true
    }

    pub(super) fn insert(
        &mut self,
        id: EventId,
        delivery: Delivery,
        stage: Stage,
        time_left: Duration,
        now: Instant,
    ) {
        if stage == Stage::Ready {
            self.ready.push_back(id.clone());
        }
        let extend_at = Some(extend_at(time_left, now));
        self.next_extension = earlier(self.next_extension, extend_at);
        self.events.insert(id, InFlight { delivery, stage, extend_at });
    }

    /// Settling events do not count: the server may deliver others before its confirmation is here.
    pub(super) fn is_over_limit(&self, limit: usize) -> bool {
        let is_settling = |event: &&InFlight| matches!(event.stage, Stage::Settling { .. });
        self.events.len() >= limit
            && self.events.values().filter(|event| !is_settling(event)).count() >= limit
    }

    pub(super) fn start(&mut self, concurrency: usize) -> Option<(EventId, Delivery)> {
        while self.running < concurrency {
            let id = self.ready.pop_front()?;
            if let Some(event) = self.in_stage(&id, Stage::Ready) {
                event.stage = Stage::Running;
                let delivery = event.delivery.clone();
                self.running += 1;
                return Some((id, delivery));
            }
        }
        None
    }

    /// The handler of a running event is done. Returns whether its lease is still held, or `None`
    /// if the event does not run.
    pub(super) fn finish(&mut self, id: &EventId) -> Option<bool> {
        let event = self.in_stage(id, Stage::Running)?;
        event.stage = Stage::Settling { is_redelivered: false };
        let has_lease = event.extend_at.is_some();
        self.running -= 1;
        Some(has_lease)
    }

    /// The server has looked up the mark. Returns `true` if the event is marked, and so has to be
    /// acknowledged.
    pub(super) fn checked(&mut self, id: &EventId, is_marked: bool) -> bool {
        let Some(event) = self.in_stage(id, Stage::Unchecked) else { return false };
        if is_marked {
            event.stage = Stage::Settling { is_redelivered: false };
        } else {
            event.stage = Stage::Ready;
            self.ready.push_back(id.clone());
        }
        is_marked
    }

    /// The server has confirmed the result. Returns `true` if it has to be sent again, because the
    /// event was delivered again meanwhile.
    pub(super) fn confirmed(&mut self, id: &EventId) -> bool {
        if let Some(event) = self.in_stage(id, Stage::Settling { is_redelivered: true }) {
            event.stage = Stage::Settling { is_redelivered: false };
            return true;
        }
        self.remove(id);
        false
    }

    pub(super) fn lease_lost(&mut self, id: &EventId) {
        let Some(event) = self.events.get_mut(id) else { return };
        match event.stage {
            Stage::Running => {
                event.extend_at = None;
                event.delivery.lease.lose();
            }
            Stage::Unchecked | Stage::Ready => self.remove(id),
            Stage::Settling { .. } => {}
        }
    }

    pub(super) fn remove(&mut self, id: &EventId) {
        self.events.remove(id);
    }

    pub(super) fn drop_waiting(&mut self) {
        self.events
            .retain(|_, event| matches!(event.stage, Stage::Running | Stage::Settling { .. }));
        self.ready.clear();
    }

    pub(super) fn keep_running_only(&mut self) {
        self.next_extension = None;
        self.ready.clear();
        self.events.retain(|_, event| {
            event.extend_at = None;
            event.delivery.lease.lose();
            event.stage == Stage::Running
        });
    }

    pub(super) fn lose_all_leases(&self) {
        for event in self.events.values() {
            event.delivery.lease.lose();
        }
    }

    /// Appends the events whose leases are to be extended now.
    pub(super) fn extend_due(&mut self, now: Instant, due: &mut VecDeque<EventId>) {
        if self.next_extension.is_none_or(|at| at > now) {
            return;
        }
        self.next_extension = None;
        let again_at = extend_at(self.extension(), now);
        for (id, event) in &mut self.events {
            if let Some(at) = event.extend_at.as_mut() {
                if *at <= now {
                    *at = again_at;
                    due.push_back(id.clone());
                }
                self.next_extension = earlier(self.next_extension, Some(*at));
            }
        }
    }

    pub(super) fn next_extension(&self) -> Option<Instant> {
        self.next_extension
    }

    fn in_stage(&mut self, id: &EventId, stage: Stage) -> Option<&mut InFlight> {
        self.events.get_mut(id).filter(|event| event.stage == stage)
    }
}

/// Two fifths into the lease, so that a second try is possible before it ends.
fn extend_at(lease: Duration, now: Instant) -> Instant {
    now + lease * 2 / 5
}
