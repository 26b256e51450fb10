//! Applies a retention rule: drops whole segments, and whole extents of the write-ahead log.
//!
//! The age of an event counts from its arrival, the time at which the engine stored it. Its `ts` is
//! the publisher's, who may be wrong or may import old events.
//!
//! The clock may have been wrong as well, so an arrival counts only if it is in order: not in the
//! future, and not before the arrival of an earlier event. An event whose arrival does not count was
//! stored before the next one whose arrival does, and is dropped together with that one. If there is
//! no such event, its age counts from when retention first found that out, or found it out again
//! after a restart. So a clock that was wrong for a while delays retention for the events of that
//! while, and a correct clock never drops an event too early, except if the clock was behind when the
//! first events of a topic were stored.

use prombus_proto::{Seq, Timestamp, Topic};

use crate::Retention;
use crate::disk::read::topic_view::TopicView;
use crate::disk::shared::Shared;

/// Returns the first event of `topic` to retain under `rule`.
pub(crate) fn first_retained(shared: &Shared, topic: &Topic, rule: &Retention) -> Seq {
    let now = shared.options.clock.now();
    let (found, next) = {
        let view = shared.view();
        let Some(view) = view.topics.get(topic) else { return Seq::FIRST };
        (Sweep::new(view, now).first_retained(view, rule), view.next)
    };
    if let Some(since) = found.undated_since {
        shared.view_mut().topic_mut(topic).undated_tail = Some((next, since));
    }
    found.first
}

/// Records whether `rule` limits the age of events, which decides how segments are divided. A topic
/// that is not stored yet gets it when the rule is applied again.
pub(crate) fn record_age_limit(shared: &Shared, topic: &Topic, rule: &Retention) {
    let has_age_limit = rule.max_age_ms.is_some();
    let recorded = shared.view().topics.get(topic).map(|view| view.has_age_limit);
    if recorded.is_some_and(|recorded| recorded != has_age_limit) {
        shared.view_mut().topic_mut(topic).has_age_limit = has_age_limit;
    }
}

struct Retained {
    first: Seq,
    /// Set if the age of the last events counts from this time.
    undated_since: Option<Timestamp>,
}

/// One pass over the segments and extents of a topic.
struct Sweep {
    now: Timestamp,
    /// The newest arrival so far that counts.
    newest: Timestamp,
    /// The arrival of the next event whose arrival counts, if any, once it was searched for. Holds until
    /// that event.
    next_in_order: Option<Option<Timestamp>>,
    undated_since: Timestamp,
}

impl Sweep {
    fn new(view: &TopicView, now: Timestamp) -> Self {
        // Events that were stored since then may have arrivals that count.
        let known = view.undated_tail.filter(|(next, since)| *next == view.next && *since <= now);
        let undated_since = known.map_or(now, |(_, since)| since);
        let newest = if view.trimmed_arrival <= now { view.trimmed_arrival } else { Timestamp(0) };
        Self { now, newest, next_in_order: None, undated_since }
    }

    /// Drops from the front as long as a whole segment or extent is too old, or everything after it
    /// still reaches the size limit.
    fn first_retained(mut self, view: &TopicView, rule: &Retention) -> Retained {
        let oldest = rule.max_age_ms.map(|age| self.now.minus_ms(age));
        let mut bytes_left = view.bounds().bytes;
        let mut retained = Retained { first: view.first, undated_since: None };
        let segments = view.segments.iter().map(|s| (s.last, s.arrived, s.bytes()));
        let extents = view.wal.iter().map(|e| (e.last(), e.arrived, u64::from(e.bytes)));
        let mut rest = segments.chain(extents);
        while let Some((last, arrived, bytes)) = rest.next() {
            bytes_left -= bytes;
            let too_old = oldest.is_some_and(|oldest| {
                let later = rest.clone().map(|(_, arrived, _)| arrived);
                let stored = self.stored_at(arrived, later);
                retained.undated_since = stored.is_none().then_some(self.undated_since);
                stored.unwrap_or(self.undated_since) < oldest
            });
            let too_large = rule.max_bytes.is_some_and(|max| bytes_left >= max);
            if !too_old && !too_large {
                break;
            }
            retained.first = last.next();
        }
        retained
    }

    /// Returns the latest time at which something with this arrival can have been stored, or `None`
    /// if neither its arrival nor those of `later` tell.
    fn stored_at(
        &mut self,
        arrived: Timestamp,
        mut later: impl Iterator<Item = Timestamp>,
    ) -> Option<Timestamp> {
        let in_order = self.newest..=self.now;
        if in_order.contains(&arrived) {
            self.newest = arrived;
            self.next_in_order = None;
            return Some(arrived);
        }
        *self.next_in_order.get_or_insert_with(|| later.find(|later| in_order.contains(later)))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::disk::ids::TopicOrdinal;

    #[test]
    fn arrivals_that_count_for_nothing_are_searched_once() {
        let view = TopicView::new(&Topic::new("t").unwrap(), TopicOrdinal(0), 1);
        let now = Timestamp(1000);
        let arrivals = |last| (0..500).map(|n| Timestamp(2000 + n)).chain([last]);
        for last in [Timestamp(500), Timestamp(3000)] {
            let (mut sweep, visited) = (Sweep::new(&view, now), Cell::new(0));
            for start in 0..500 {
                let later = arrivals(last).skip(start + 1);
                let later = later.inspect(|_| visited.set(visited.get() + 1));
                let expected = (last <= now).then_some(last);
                assert_eq!(sweep.stored_at(Timestamp(2000), later), expected);
            }
            assert!(visited.get() <= 501, "{} arrivals were visited", visited.get());
            assert_eq!(sweep.stored_at(Timestamp(600), std::iter::empty()), Some(Timestamp(600)));
            assert_eq!(sweep.stored_at(Timestamp(2000), std::iter::empty()), None);
        }
    }
}
