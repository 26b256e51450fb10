//! When which event is to be sent.

use std::time::Duration;

/// When events are to be sent, counted from the beginning of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// As soon as there is room for them.
    FlatOut,
    /// So many a second, whatever becomes of those before: an open loop.
    Steady {
        /// More than none.
        per_second: f64,
    },
}

impl Schedule {
    /// That of so many events a second, or flat out.
    #[must_use]
    pub fn of(rate: Option<f64>) -> Self {
        rate.map_or(Self::FlatOut, |per_second| Self::Steady { per_second })
    }

    /// When this event, counted from 0, is meant to be sent; if anything says.
    #[must_use]
    pub fn intended(&self, event: u64) -> Option<Duration> {
        match self {
            Self::FlatOut => None,
            Self::Steady { per_second } => Some(Duration::from_secs_f64(event as f64 / per_second)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_spread_evenly() {
        let schedule = Schedule::of(Some(5000.0));
        let at = |event| schedule.intended(event).unwrap();
        assert_eq!([at(0), at(1)], [Duration::ZERO, Duration::from_micros(200)]);
        assert_eq!(at(50_000), Duration::from_secs(10));
        assert_eq!(Schedule::of(None).intended(7), None);
    }
}
