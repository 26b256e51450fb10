//! How fast to publish where the server said that it was too fast.
//!
//! A refusal says when there is a token for the frame that was refused. Everything behind it has to
//! wait, too: sent at once it would only be refused. So nothing goes until then, then one frame,
//! and twice as many for each that is stored, until the next refusal or until nobody need care.

use std::collections::HashMap;
use std::time::Instant;

use prombus_proto::Topic;

/// The paces of those who have to mind one: the connection as a whole (`None`), and topics.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    paces: HashMap<Option<Topic>, Pace>,
}

#[derive(Debug)]
struct Pace {
    held_until: Instant,
    /// How many may be on their way.
    allowed: usize,
    in_flight: usize,
}

/// From here on nobody minds.
const ALLOWED_WITHOUT_CARE: usize = 1024;

impl Pacing {
    /// Whether nobody has to mind anything.
    pub(super) fn is_free(&self) -> bool {
        self.paces.is_empty()
    }

    pub(super) fn may_send(&self, topic: &Topic, now: Instant) -> bool {
        let is_free = |of: &Option<Topic>| {
            self.paces
                .get(of)
                .is_none_or(|pace| now >= pace.held_until && pace.in_flight < pace.allowed)
        };
        self.is_free() || (is_free(&None) && is_free(&Some(topic.clone())))
    }

    pub(super) fn sent(&mut self, topic: &Topic) {
        self.each(topic, |pace| pace.in_flight += 1);
    }

    /// It was answered, and not by a refusal for its rate.
    pub(super) fn stored(&mut self, topic: &Topic) {
        self.each(topic, |pace| {
            pace.in_flight = pace.in_flight.saturating_sub(1);
            pace.allowed = pace.allowed.saturating_mul(2);
        });
        self.paces.retain(|_, pace| pace.allowed < ALLOWED_WITHOUT_CARE);
    }

    /// Too fast, for the whole connection or for this topic.
    pub(super) fn refused(&mut self, topic: &Topic, is_connection: bool, until: Instant) {
        self.each(topic, |pace| pace.in_flight = pace.in_flight.saturating_sub(1));
        let of = (!is_connection).then(|| topic.clone());
        let pace =
            self.paces.entry(of).or_insert(Pace { held_until: until, allowed: 1, in_flight: 0 });
        pace.held_until = pace.held_until.max(until);
        pace.allowed = 1;
    }

    /// The connection is gone, and all that was on its way. The next has a bucket of its own.
    pub(super) fn connection_lost(&mut self) {
        self.paces.remove(&None);
        for pace in self.paces.values_mut() {
            pace.in_flight = 0;
        }
    }

    /// When somebody may send again who may not now.
    pub(super) fn next_wake(&self, now: Instant) -> Option<Instant> {
        self.paces.values().map(|pace| pace.held_until).filter(|until| *until > now).min()
    }

    fn each(&mut self, topic: &Topic, change: impl Fn(&mut Pace)) {
        if self.paces.is_empty() {
            return;
        }
        for of in [None, Some(topic.clone())] {
            if let Some(pace) = self.paces.get_mut(&of) {
                change(pace);
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
    fn a_limited_topic_holds_back_itself_alone() {
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
    fn a_limited_connection_holds_back_all_until_it_is_gone() {
        let (a, b) = topics();
        let now = Instant::now();
        let mut pacing = Pacing::default();
        pacing.refused(&a, true, now + Duration::from_secs(1));
        assert!(!pacing.may_send(&a, now) && !pacing.may_send(&b, now));
        pacing.connection_lost();
        assert!(pacing.may_send(&b, now) && pacing.is_free());
    }

    #[test]
    fn it_goes_on_one_by_one_and_then_faster() {
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
        assert!(send_all_allowed(&mut pacing) == 10_000 && pacing.is_free());
    }
}
