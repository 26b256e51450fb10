//! How long to wait before something is tried again, and how often.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);

/// Tries in a row that went wrong.
pub(super) struct BackOff {
    most: u32,
    failed: u32,
}

impl BackOff {
    /// For so many tries.
    pub(super) fn new(most: u32) -> Self {
        Self { most, failed: 0 }
    }

    /// One more went wrong: how long to wait for the next, if there is one.
    pub(super) fn failed(&mut self) -> Option<Duration> {
        let wait = FIRST.saturating_mul(1 << self.failed.min(16)).min(LONGEST);
        self.failed += 1;
        (self.failed <= self.most).then_some(wait)
    }

    /// How many went wrong in a row.
    pub(super) fn count(&self) -> u32 {
        self.failed
    }

    /// It goes on.
    pub(super) fn went_well(&mut self) {
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_each_time_until_it_gives_up() {
        let mut back_off = BackOff::new(8);
        let millis = |wait: Option<Duration>| wait.map(|wait| wait.as_millis());
        for expected in [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            assert_eq!(millis(back_off.failed()), Some(expected));
        }
        assert_eq!(back_off.failed(), None);
        back_off.went_well();
        assert_eq!(millis(back_off.failed()), Some(200));
        assert_eq!(BackOff::new(0).failed(), None);
    }
}
