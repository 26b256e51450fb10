//! How often an event is tried, and how long it waits in between.

use std::time::Duration;

use prombus_proto::limits::MAX_ATTEMPTS;

/// The wait before an event is redelivered: longer after every failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryDelays {
    /// After the first failure.
    pub first: Duration,
    /// How many times longer each wait is than the one before.
    pub factor: u32,
    /// The longest wait.
    pub max: Duration,
}

/// What a group does with events that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryRules {
    pub(crate) delays: RetryDelays,
    /// Failures of an event until it becomes a dead letter, 1 or more.
    pub(crate) max_attempts: u32,
}

impl RetryDelays {
    /// The wait after the `failures`th failure; none if there was no failure.
    pub(crate) fn after(&self, failures: u16) -> Duration {
        let Some(exponent) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = self.factor.saturating_pow(u32::from(exponent));
        self.first.saturating_mul(factor).min(self.max)
    }
}

/// Returns the number of attempts that counts if somebody asks for `asked`. With none at all, every event
/// would be dead-lettered undelivered.
pub(crate) fn allowed_attempts(asked: u32) -> u32 {
    asked.clamp(1, MAX_ATTEMPTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_up_to_its_maximum() {
        let delays =
            RetryDelays { first: Duration::from_secs(1), factor: 5, max: Duration::from_secs(600) };
        let seconds: Vec<_> = (0..8).map(|failures| delays.after(failures).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 5, 25, 125, 600, 600, 600]);
        assert_eq!(delays.after(u16::MAX), Duration::from_secs(600));
    }

    #[test]
    fn with_a_factor_of_one_all_waits_are_equal() {
        let second = Duration::from_secs(1);
        let delays = RetryDelays { first: second, factor: 1, max: second * 600 };
        assert_eq!([1, 2, 1000].map(|failures| delays.after(failures)), [second; 3]);
    }
}
