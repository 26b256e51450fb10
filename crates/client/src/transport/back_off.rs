//! Waits between attempts.

use std::time::Duration;

use prombus_proto::RandomSource;

/// Exponential back-off: waits that double with each failure, up to a maximum.
#[derive(Clone, Debug)]
pub struct BackOff {
    first: Duration,
    longest: Duration,
    failed: u32,
}

impl BackOff {
    /// Creates a back-off that waits `first` after the first failure, twice as long after each
    /// further one, and at most `longest`.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failed: 0 }
    }

    /// Counts a failure and returns how long to wait before the next attempt.
    pub fn next_wait(&mut self) -> Duration {
        let wait = wait_after(self.first, self.longest, self.failed);
        self.failed = self.failed.saturating_add(1);
        wait
    }

    /// Returns the number of failures in a row.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failed
    }

    /// Forgets the failures after a success.
    pub const fn reset(&mut self) {
        self.failed = 0;
    }
}

/// Returns how long to wait after a failure, with `failed` failures before it.
#[must_use]
pub fn wait_after(first: Duration, longest: Duration, failed: u32) -> Duration {
    first.saturating_mul(1 << failed.min(16)).min(longest)
}

/// Returns a random time up to `longest`, so that clients that failed together do not retry
/// together.
#[must_use]
pub fn full_jitter(longest: Duration, random: &dyn RandomSource) -> Duration {
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(match nanos.checked_add(1) {
        Some(count) => random.next_u64() % count,
        None => random.next_u64(),
    })
}

#[cfg(test)]
mod tests {
    use prombus_proto::SeededRandom;

    use super::*;

    #[test]
    fn doubles_the_wait_up_to_the_maximum() {
        let mut back_off = BackOff::new(Duration::from_millis(200), Duration::from_secs(10));
        for expected in [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000] {
            assert_eq!(back_off.next_wait().as_millis(), expected);
        }
        assert_eq!(back_off.failures(), 8);
        back_off.reset();
        assert_eq!(back_off.next_wait().as_millis(), 200);
    }

    #[test]
    fn jitter_spreads_waits_evenly() {
        let random = SeededRandom::new(1);
        let longest = Duration::from_millis(100);
        let waits: Vec<_> = (0..1000).map(|_| full_jitter(longest, &random)).collect();
        assert!(waits.iter().all(|wait| *wait <= longest));
        for tenth in 0..10 {
            let within = longest * tenth / 10..longest * (tenth + 1) / 10;
            assert!(waits.iter().filter(|wait| within.contains(*wait)).count() > 50, "{tenth}");
        }
        assert_eq!(full_jitter(Duration::ZERO, &random), Duration::ZERO);
    }
}
