//! UUIDv7 from the future.
//!
//! An id far ahead of the clock must not become the newest id of its topic: no id after it would be
//! newer for a long time, so all of them would have to be hashed and looked up. It is hashed itself
//! instead, like any id that is not monotonic.

use prombus_proto::Timestamp;

/// How far ahead of the engine's clock a monotonic id may be. Clocks that are synchronized differ
/// by much less.
const MAX_AHEAD_MS: u64 = 60_000;

/// The newest UUIDv7 that counts as monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdLimit(u128);

impl IdLimit {
    /// The limit of a frame that was built at `arrived`. Frames of version 1, which do not say when,
    /// were written without a limit. It comes from the frame alone, so that a replay classifies ids
    /// as the journal did.
    pub(crate) fn of_frame(arrived: Option<Timestamp>) -> Self {
        let end = arrived.map_or(u64::MAX, |arrived| arrived.plus_ms(MAX_AHEAD_MS + 1).0);
        // A UUIDv7 starts with its time, in 48 bits.
        Self(if end < 1 << 48 { (u128::from(end) << 80) - 1 } else { u128::MAX })
    }

    pub(crate) const fn allows(self, id: u128) -> bool {
        id <= self.0
    }
}

/// The newest ids of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewestIds {
    /// The newest monotonic id.
    pub(crate) monotonic: u128,
    /// The lowest and the highest of the ids that were too far ahead, as long as they are newer than
    /// the monotonic ids.
    pub(crate) ahead: Option<(u128, u128)>,
}

impl NewestIds {
    /// Adds a UUIDv7. Returns `true` if it is monotonic, and `false` if it has to be hashed.
    pub(crate) fn add(&mut self, id: u128, limit: IdLimit) -> bool {
        if id <= self.monotonic {
            return false;
        }
        if limit.allows(id) {
            self.monotonic = id;
            return true;
        }
        let newer = self.ahead.filter(|(_, highest)| *highest > self.monotonic);
        let (lowest, highest) = newer.unwrap_or((id, id));
        self.ahead = Some((lowest.min(id), highest.max(id)));
        false
    }

    /// Returns `true` if the topic cannot have this UUIDv7, which then needs no look-up.
    pub(crate) fn excludes(&self, id: u128) -> bool {
        let is_ahead = |(lowest, highest)| (lowest..=highest).contains(&id);
        id > self.monotonic && !self.ahead.is_some_and(is_ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id_at(millis: u64) -> u128 {
        (millis as u128) << 80 | 0x7000_8000_0000_0000_0001
    }

    #[test]
    fn an_id_far_ahead_of_the_clock_is_not_the_newest() {
        let limit = IdLimit::of_frame(Some(Timestamp(1_000_000)));
        let mut newest = NewestIds::default();
        assert!(newest.add(id_at(1_000_000), limit));
        assert!(newest.add(id_at(1_060_000), limit));
        assert!(!newest.add(id_at(1_060_001), limit));
        assert!(!newest.add(id_at(2_000_000), limit));
        assert_eq!(newest.monotonic, id_at(1_060_000));
        for known in [1_000_000, 1_060_000, 1_060_001, 1_500_000, 2_000_000] {
            assert!(!newest.excludes(id_at(known)), "{known}");
        }
        assert!(newest.excludes(id_at(1_060_000) + 1) && newest.excludes(id_at(2_000_001)));
        // Later, the clock has passed them.
        let limit = IdLimit::of_frame(Some(Timestamp(2_000_000)));
        assert!(newest.add(id_at(2_000_002), limit));
        assert!(!newest.add(id_at(3_000_000), limit));
        assert_eq!(newest.ahead, Some((id_at(3_000_000), id_at(3_000_000))));
        assert!(newest.excludes(id_at(2_000_003)) && !newest.excludes(id_at(2_000_000)));
    }

    #[test]
    fn a_frame_without_arrival_has_no_limit() {
        assert!(IdLimit::of_frame(None).allows(u128::MAX));
        assert!(IdLimit::of_frame(Some(Timestamp(u64::MAX))).allows(u128::MAX));
        assert!(!IdLimit::of_frame(Some(Timestamp(0))).allows(id_at(60_001)));
    }
}
