//! A bounded number of retries, with back-off.

use std::time::Duration;

use prombus_client::transport::BackOff;

const FIRST_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Counts consecutive failures, up to a limit.
pub(super) struct Retries {
    max: u32,
    back_off: BackOff,
}

impl Retries {
    pub(super) fn up_to(max: u32) -> Self {
        Self { max, back_off: BackOff::new(FIRST_DELAY, MAX_DELAY) }
    }

    /// Records a failure. Returns the delay before the next attempt, or `None` if none is left.
    pub(super) fn failed(&mut self) -> Option<Duration> {
        let delay = self.back_off.next_wait();
        (self.back_off.failures() <= self.max).then_some(delay)
    }

    /// The number of consecutive failures.
    pub(super) fn count(&self) -> u32 {
        self.back_off.failures()
    }

    /// Records progress: the next failure is the first again.
    pub(super) fn reset(&mut self) {
        self.back_off.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_after_the_limit_and_starts_over_after_a_reset() {
        let mut retries = Retries::up_to(2);
        assert_eq!(retries.failed(), Some(Duration::from_millis(200)));
        assert_eq!(retries.failed(), Some(Duration::from_millis(400)));
        assert_eq!(retries.failed(), None);
        retries.reset();
        assert_eq!(retries.failed(), Some(Duration::from_millis(200)));
        assert_eq!(Retries::up_to(0).failed(), None);
    }
}
