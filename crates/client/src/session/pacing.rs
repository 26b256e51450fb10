//! Throttling after the server has refused a publish as `rate_limited`.
//!
//! A refusal says when there will be a token for the refused frame. The frames after it
//! have to wait as well, because they would only be refused. So nothing is sent until then; then
//! one frame, and the number allowed in flight doubles with each stored frame, until the next
//! refusal or until the throttle is lifted.

use std::collections::HashMap;
use std::time::Instant;

use prombus_proto::Topic;

/// The active throttles: of the whole connection (`None`) and of single topics.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    throttles: HashMap<Option<Topic>, Throttle>,
}

#[derive(Debug)]
struct Throttle {
    closed_until: Instant,
    /// How many frames may be in flight.
    allowed: usize,
    in_flight: usize,
}

/// A throttle that would allow this many is lifted.
const LIFTED_AT: usize = 1024;

impl Pacing {
    pub(super) fn is_unlimited(&self) -> bool {
        self.throttles.is_empty()
    }

    pub(super) fn may_send(&self, topic: &Topic, now: Instant) -> bool {
        let is_open = |scope: &Option<Topic>| {
            self.throttles.get(scope).is_none_or(|throttle| {
                now >= throttle.closed_until && throttle.in_flight < throttle.allowed
            })
        };
        self.is_unlimited() || (is_open(&None) && is_open(&Some(topic.clone())))
    }

    pub(super) fn sent(&mut self, topic: &Topic) {
        self.each(topic, |throttle| throttle.in_flight += 1);
    }

    /// The frame was answered, and not refused for its rate.
    pub(super) fn stored(&mut self, topic: &Topic) {
        self.each(topic, |throttle| {
            throttle.in_flight = throttle.in_flight.saturating_sub(1);
            throttle.allowed = throttle.allowed.saturating_mul(2);
        });
        self.throttles.retain(|_, throttle| throttle.allowed < LIFTED_AT);
    }

    /// The frame was too fast for the whole connection, or for this topic.
    pub(super) fn refused(&mut self, topic: &Topic, is_connection: bool, until: Instant) {
        self.each(topic, |throttle| throttle.in_flight = throttle.in_flight.saturating_sub(1));
        let scope = (!is_connection).then(|| topic.clone());
        let throttle = self.throttles.entry(scope).or_insert(Throttle {
            closed_until: until,
            allowed: 1,
            in_flight: 0,
        });
        throttle.closed_until = throttle.closed_until.max(until);
        throttle.allowed = 1;
    }

    /// Nothing is in flight any more, and the next connection has a token bucket of its own.
    pub(super) fn connection_lost(&mut self) {
        self.throttles.remove(&None);
        for throttle in self.throttles.values_mut() {
            throttle.in_flight = 0;
        }
    }

    /// When the next throttle opens.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.throttles
            .values()
            .map(|throttle| throttle.closed_until)
            .filter(|until| *until > now)
            .min()
    }

    fn each(&mut self, topic: &Topic, change: impl Fn(&mut Throttle)) {
        if self.throttles.is_empty() {
            return;
        }
        for scope in [None, Some(topic.clone())] {
            if let Some(throttle) = self.throttles.get_mut(&scope) {
                change(throttle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn topics() -> (Topic, Topic) {
        (Topic::new("a").unwrap(), Topic::new("b").unwrap())
    }

    #[test]
    fn throttles_only_the_limited_topic() {
        let (a, b) = topics();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut pacing = Pacing::default();
        pacing.refused(&a, false, later);
        assert!(!pacing.may_send(&a, now) && pacing.may_send(&b, now));
        assert_eq!(pacing.next_wake(now), Some(later));
        assert!(pacing.may_send(&a, later));
        assert_eq!(pacing.next_wake(later), None);
    }

    #[test]
    fn throttles_all_topics_of_a_limited_connection_until_it_is_lost() {
        let (a, b) = topics();
        let now = Instant::now();
        let mut pacing = Pacing::default();
        pacing.refused(&a, true, now + Duration::from_secs(1));
        assert!(!pacing.may_send(&a, now) && !pacing.may_send(&b, now));
        pacing.connection_lost();
        assert!(pacing.may_send(&b, now) && pacing.is_unlimited());
    }

    #[test]
    fn doubles_the_allowance_with_each_stored_frame() {
        let (a, _) = topics();
        let now = Instant::now();
        let mut pacing = Pacing::default();
        pacing.refused(&a, false, now);
        let send_all_allowed = |pacing: &mut Pacing| {
            let mut count = 0;
            while pacing.may_send(&a, now) && count < 10_000 {
                pacing.sent(&a);
                count += 1;
            }
            count
        };
        for allowed in [1, 2, 8] {
            assert_eq!(send_all_allowed(&mut pacing), allowed);
            for _ in 0..allowed {
                pacing.stored(&a);
            }
        }
        assert!(send_all_allowed(&mut pacing) == 10_000 && pacing.is_unlimited());
    }
}
