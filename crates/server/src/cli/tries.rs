//! How often something is tried again, and how long to wait in between.

use std::time::Duration;

use prombus_client::transport::BackOff;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);

/// Tries in a row that went wrong, up to an end.
pub(super) struct Tries {
    most: u32,
    back_off: BackOff,
}

impl Tries {
    /// So many.
    pub(super) fn at_most(most: u32) -> Self {
        Self { most, back_off: BackOff::new(FIRST, LONGEST) }
    }

    /// One more went wrong: how long to wait for the next, if there is one.
    pub(super) fn failed(&mut self) -> Option<Duration> {
        let wait = self.back_off.next_wait();
        (self.back_off.failures() <= self.most).then_some(wait)
    }

    /// How many went wrong in a row.
    pub(super) fn count(&self) -> u32 {
        self.back_off.failures()
    }

    /// It goes on.
    pub(super) fn went_well(&mut self) {
        self.back_off.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_end_to_them() {
        let mut tries = Tries::at_most(2);
        assert_eq!(tries.failed(), Some(Duration::from_millis(200)));
        assert_eq!(tries.failed(), Some(Duration::from_millis(400)));
        assert_eq!(tries.failed(), None);
        tries.went_well();
        assert_eq!(tries.failed(), Some(Duration::from_millis(200)));
        assert_eq!(Tries::at_most(0).failed(), None);
    }
}
