//! When events were handed to the bus.

use std::iter;
use std::time::Instant;

/// The publish time of each event of a batch, run-length encoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct PublishTimes {
    earlier: Vec<Run>,
    /// Separate from the others, so that a batch with one publish time allocates nothing.
    last: Option<Run>,
}

/// A publish time, and the number of consecutive events that share it.
type Run = (Instant, usize);

impl PublishTimes {
    pub(crate) const fn new() -> Self {
        Self { earlier: Vec::new(), last: None }
    }

    pub(crate) const fn of(published_at: Instant, events: usize) -> Self {
        Self { earlier: Vec::new(), last: Some((published_at, events)) }
    }

    /// Moves the times of `other` to the end.
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

    /// Returns the publish times of `events` events: `None` for those past the end.
    pub(crate) fn each(&self, events: usize) -> impl Iterator<Item = Option<Instant>> {
        let known =
            self.runs().flat_map(|(published_at, run)| iter::repeat_n(Some(published_at), run));
        known.chain(iter::repeat(None)).take(events)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn appending_keeps_the_time_of_every_event() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut late = PublishTimes::of(at(2), 1);
        late.append(PublishTimes::of(at(3), 3));
        late.append(PublishTimes::new());
        let mut all = PublishTimes::new();
        all.append(PublishTimes::of(at(1), 2));
        all.append(late);
        let each: Vec<_> = all.each(7).collect();
        assert_eq!(each[..6], [1, 1, 2, 3, 3, 3].map(|ms| Some(at(ms))));
        assert_eq!(each[6..], [None]);
    }

    #[test]
    fn equal_times_are_one_run() {
        let at = Instant::now();
        let mut all = PublishTimes::of(at, 1);
        all.append(PublishTimes::of(at, 2));
        assert_eq!(all.runs().collect::<Vec<_>>(), [(at, 3)]);
    }
}
