//! When an event is to be sent.

use std::time::Duration;

/// When events are to be sent, relative to the start of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// As soon as the window has room.
    FlatOut,
    /// At a constant rate, regardless of answers: an open loop.
    Steady {
        /// Greater than 0.
        per_second: f64,
    },
}

impl Schedule {
    /// Returns the schedule for a rate in events per second.
    #[must_use]
    pub fn of(rate: Option<f64>) -> Self {
        rate.map_or(Self::FlatOut, |per_second| Self::Steady { per_second })
    }

    /// Returns when the event with this index is to be sent; `None` if as soon as possible.
    #[must_use]
    pub fn time_of(&self, event: u64) -> Option<Duration> {
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
    fn spreads_events_evenly() {
        let schedule = Schedule::of(Some(5000.0));
        let at = |event| schedule.time_of(event).unwrap();
        assert_eq!([at(0), at(1)], [Duration::ZERO, Duration::from_micros(200)]);
        assert_eq!(at(50_000), Duration::from_secs(10));
        assert_eq!(Schedule::of(None).time_of(7), None);
    }
}
