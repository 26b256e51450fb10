//! When the bus took the events of a publish.

use std::iter;
use std::time::Instant;

/// When events were taken, in their order. Those of one frame were taken together.
#[derive(Clone, Debug, Default)]
pub(crate) struct PublishTimes {
    earlier: Vec<Run>,
    /// Apart from the others, so that a single frame allocates nothing.
    last: Option<Run>,
}

/// So many events in a row.
type Run = (Instant, usize);

impl PublishTimes {
    pub(crate) const fn none() -> Self {
        Self { earlier: Vec::new(), last: None }
    }

    pub(crate) const fn of(taken_at: Instant, events: usize) -> Self {
        Self { earlier: Vec::new(), last: Some((taken_at, events)) }
    }

    /// Takes the moments of `other` behind its own.
    pub(crate) fn append(&mut self, mut other: PublishTimes) {
        if self.last.is_none() {
            *self = other;
        } else if let (Some((at, events)), Some((same, more)), []) =
            (&mut self.last, other.last, other.earlier.as_slice())
            && *at == same
        {
            *events += more;
        } else if other.last.is_some() {
            self.earlier.extend(self.last.take());
            self.earlier.append(&mut other.earlier);
            self.last = other.last;
        }
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.earlier.iter().copied().chain(self.last)
    }

    /// The moment of each of so many events, as far as they are known.
    pub(crate) fn each(&self, events: usize) -> impl Iterator<Item = Option<Instant>> {
        let known = self.runs().flat_map(|(taken_at, run)| iter::repeat_n(Some(taken_at), run));
        known.chain(iter::repeat(None)).take(events)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_event_keeps_its_moment_in_whatever_parts_they_come() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut late = PublishTimes::of(at(2), 1);
        late.append(PublishTimes::of(at(3), 3));
        late.append(PublishTimes::none());
        let mut all = PublishTimes::none();
        all.append(PublishTimes::of(at(1), 2));
        all.append(late);
        let each: Vec<_> = all.each(7).collect();
        assert_eq!(each[..6], [1, 1, 2, 3, 3, 3].map(|ms| Some(at(ms))));
        assert_eq!(each[6..], [None]);
    }

    #[test]
    fn those_of_one_moment_are_one_run() {
        let at = Instant::now();
        let mut all = PublishTimes::of(at, 1);
        all.append(PublishTimes::of(at, 2));
        assert_eq!(all.runs().collect::<Vec<_>>(), [(at, 3)]);
    }
}
