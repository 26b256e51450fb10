//! The events that a subscriber has received and not finished, through lost connections.
//!
//! With its connection a subscriber loses its leases, and the server delivers again what was not acknowledged. An
//! event that was handled here is then acknowledged instead of handled a second time.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use prombus_proto::EventId;

/// How many handled events to remember whose acknowledgement was lost. A subscription has at most as many in
/// flight.
const MAX_UNCONFIRMED: usize = 10_000;

pub(super) struct Deliveries {
    /// Events left to receive; `None` without `--count`.
    remaining: Option<u64>,
    waiting: VecDeque<(EventId, Bytes)>,
    /// Passed to the handler.
    in_handler: HashSet<EventId>,
    /// Those of the handler's events that are leased to the current connection.
    leased: HashSet<EventId>,
    /// Handled, but the acknowledgement was lost with a connection.
    unconfirmed: HashSet<EventId>,
}

/// What to do with a delivered event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits for the handler, or is in it.
    Wait,
    /// It waits for the handler, and no more events are wanted.
    WaitAndPause,
    /// It was handled before: acknowledge it.
    Acknowledge(EventId),
    /// It is not wanted any more, and redelivered after the connection closes.
    Leave,
}

impl Deliveries {
    pub(super) fn new(count: Option<u64>) -> Self {
        Self {
            remaining: count,
            waiting: VecDeque::new(),
            in_handler: HashSet::new(),
            leased: HashSet::new(),
            unconfirmed: HashSet::new(),
        }
    }

    pub(super) fn receive(&mut self, id: EventId, event: Bytes) -> Next {
        if self.unconfirmed.remove(&id) {
            return Next::Acknowledge(id);
        }
        if self.in_handler.contains(&id) {
            self.leased.insert(id);
            return Next::Wait;
        }
        match &mut self.remaining {
            None => {}
            Some(0) => return Next::Leave,
            Some(remaining) => *remaining -= 1,
        }
        self.waiting.push_back((id, event));
        if self.remaining == Some(0) { Next::WaitAndPause } else { Next::Wait }
    }

    /// Returns up to `count` of the oldest events, for the handler.
    pub(super) fn start(&mut self, count: usize) -> Vec<(EventId, Bytes)> {
        let count = count.min(self.waiting.len());
        let events: Vec<_> = self.waiting.drain(..count).collect();
        self.in_handler = events.iter().map(|(id, _)| id.clone()).collect();
        self.leased.clone_from(&self.in_handler);
        events
    }

    /// Records that the handler is done with all its events. Returns those whose lease can be ended; the others are
    /// delivered again.
    pub(super) fn handled(&mut self, ids: Vec<EventId>) -> Vec<EventId> {
        self.in_handler.clear();
        let (leased, lost): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| self.leased.contains(id));
        self.leased.clear();
        self.remember(lost);
        leased
    }

    /// Records that the handler failed. Returns `true` if the event's lease can be ended; otherwise the event is
    /// delivered again.
    pub(super) fn failed(&mut self, id: &EventId) -> bool {
        self.in_handler.clear();
        let is_leased = self.leased.contains(id);
        self.leased.clear();
        is_leased
    }

    /// Records that the connection was lost, with the answers to acknowledgements of `unanswered`.
    pub(super) fn lost_connection(&mut self, unanswered: Vec<EventId>) {
        self.leased.clear();
        self.give_back();
        self.remember(unanswered);
    }

    /// Stops receiving. Events that wait go to other members.
    pub(super) fn stop(&mut self) {
        self.waiting.clear();
        self.remaining = Some(0);
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns `true` if no more events are wanted and none waits.
    pub(super) fn is_complete(&self) -> bool {
        self.remaining == Some(0) && self.waiting.is_empty()
    }

    /// How many handled events are not acknowledged, as far as this subscriber knows.
    pub(super) fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    fn give_back(&mut self) {
        if let Some(remaining) = &mut self.remaining {
            *remaining += self.waiting.len() as u64;
        }
        self.waiting.clear();
    }

    fn remember(&mut self, ids: Vec<EventId>) {
        // Others may have taken them over. To forget one costs a second delivery at most.
        if self.unconfirmed.len() + ids.len() > MAX_UNCONFIRMED {
            self.unconfirmed.clear();
        }
        self.unconfirmed.extend(ids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> EventId {
        EventId::new(name).unwrap()
    }

    fn receive(deliveries: &mut Deliveries, name: &str) -> Next {
        deliveries.receive(id(name), Bytes::new())
    }

    fn started(deliveries: &mut Deliveries, count: usize) -> Vec<EventId> {
        deliveries.start(count).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn counts_what_it_receives() {
        let mut deliveries = Deliveries::new(Some(2));
        assert_eq!(receive(&mut deliveries, "a"), Next::Wait);
        assert_eq!(receive(&mut deliveries, "b"), Next::WaitAndPause);
        assert_eq!(receive(&mut deliveries, "c"), Next::Leave);
        assert_eq!(started(&mut deliveries, 9), [id("a"), id("b")]);
        assert_eq!(deliveries.handled(vec![id("a"), id("b")]), [id("a"), id("b")]);
        assert!(deliveries.is_complete());
    }

    #[test]
    fn events_that_wait_when_the_connection_is_lost_come_again() {
        let mut deliveries = Deliveries::new(Some(2));
        receive(&mut deliveries, "a");
        receive(&mut deliveries, "b");
        deliveries.lost_connection(vec![]);
        assert!(!deliveries.is_complete() && !deliveries.has_waiting());
        assert_eq!(receive(&mut deliveries, "a"), Next::Wait);
        assert_eq!(receive(&mut deliveries, "b"), Next::WaitAndPause);
    }

    #[test]
    fn an_event_whose_acknowledgement_was_lost_is_not_handled_again() {
        let mut deliveries = Deliveries::new(None);
        receive(&mut deliveries, "a");
        started(&mut deliveries, 1);
        let sent = deliveries.handled(vec![id("a")]);
        deliveries.lost_connection(sent);
        assert_eq!(receive(&mut deliveries, "a"), Next::Acknowledge(id("a")));
        // A publisher may use the id again once the topic has dropped the event.
        assert_eq!(receive(&mut deliveries, "a"), Next::Wait);
    }

    #[test]
    fn an_event_in_the_handler_is_acknowledged_once_it_is_leased_again() {
        let mut deliveries = Deliveries::new(None);
        for name in ["a", "b"] {
            receive(&mut deliveries, name);
        }
        started(&mut deliveries, 2);
        deliveries.lost_connection(vec![]);
        assert_eq!(receive(&mut deliveries, "b"), Next::Wait);
        assert_eq!(deliveries.handled(vec![id("a"), id("b")]), [id("b")]);
        assert!(!deliveries.has_waiting());
        assert_eq!(receive(&mut deliveries, "a"), Next::Acknowledge(id("a")));
    }

    #[test]
    fn a_failure_after_the_connection_was_lost_is_not_reported_for_a_lease_of_others() {
        let mut deliveries = Deliveries::new(None);
        receive(&mut deliveries, "a");
        started(&mut deliveries, 1);
        deliveries.lost_connection(vec![]);
        assert!(!deliveries.failed(&id("a")));
        assert_eq!(receive(&mut deliveries, "a"), Next::Wait);
        started(&mut deliveries, 1);
        assert!(deliveries.failed(&id("a")));
    }

    #[test]
    fn remembers_a_bounded_number_of_events() {
        let mut deliveries = Deliveries::new(None);
        for number in 0..3 * MAX_UNCONFIRMED {
            deliveries.lost_connection(vec![id(&format!("{number}"))]);
            assert!(deliveries.unconfirmed.len() <= MAX_UNCONFIRMED);
        }
    }
}
