//! When an event was stored.

use prombus_proto::Timestamp;

/// The time at which an event was stored, by the engine's clock: exact, or between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    earliest: Timestamp,
    latest: Timestamp,
}

impl Arrival {
    /// Creates an exact arrival.
    #[must_use]
    pub const fn at(time: Timestamp) -> Self {
        Self { earliest: time, latest: time }
    }

    /// Creates an arrival between two times. If a clock that was set back makes `earliest` the later
    /// one, the arrival is `latest`.
    #[must_use]
    pub fn between(earliest: Timestamp, latest: Timestamp) -> Self {
        Self { earliest: earliest.min(latest), latest }
    }

    /// Returns the time, if it is exact.
    #[must_use]
    pub fn exact(self) -> Option<Timestamp> {
        (self.earliest == self.latest).then_some(self.latest)
    }

    /// Returns the latest time at which the event can have been stored.
    #[must_use]
    pub const fn latest(self) -> Timestamp {
        self.latest
    }

    /// Returns the time within the bounds that is closest to `ts`, the time that the publisher gave
    /// the event.
    #[must_use]
    pub fn closest_to(self, ts: Timestamp) -> Timestamp {
        ts.clamp(self.earliest, self.latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publishers_time_counts_only_within_the_bounds() {
        let between = |earliest, latest| Arrival::between(Timestamp(earliest), Timestamp(latest));
        for (arrival, ts, expected) in [
            (between(10, 20), 15, 15),
            (between(10, 20), 0, 10),
            (between(10, 20), u64::MAX, 20),
            (between(20, 10), 15, 10),
            (Arrival::at(Timestamp(7)), 0, 7),
        ] {
            assert_eq!(arrival.closest_to(Timestamp(ts)), Timestamp(expected), "{arrival:?}");
        }
        assert_eq!(between(10, 20).exact(), None);
        assert_eq!(between(20, 10).exact(), Some(Timestamp(10)));
        assert_eq!(Arrival::at(Timestamp(7)).exact(), Some(Timestamp(7)));
    }
}
