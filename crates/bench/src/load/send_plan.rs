//! What one publishing connection sends when, and what its answers mean: no I/O, time is handed in.
//!
//! All times are counted from the beginning of the run. In an open loop an event's latency counts
//! from when it was meant to be sent. A server that stalls is so charged for every event that had
//! to wait meanwhile, not only for those that were on their way: no coordinated omission.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Load;
use crate::load::schedule::Schedule;

/// A send that happens so much after it was meant to is late. Timers and wake-ups of a machine that
/// is not overloaded take less.
const LATE: Duration = Duration::from_millis(1);

/// One connection's part of a load.
#[derive(Debug)]
pub(crate) struct Sending {
    schedule: Schedule,
    events: u64,
    batch: u64,
    window: u64,
    /// Frames of all connections are counted through, and dealt out in turn.
    connections: u64,
    next_frame: u64,
    in_flight: VecDeque<Sent>,
    in_flight_events: u64,
    late: u64,
}

/// Events that go in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Which frame of all.
    pub(crate) number: u64,
    /// Its first event.
    pub(crate) first: u64,
    /// How many there are.
    pub(crate) count: u64,
}

#[derive(Debug)]
struct Sent {
    frame: Frame,
    at: Duration,
}

impl Sending {
    /// The part of connection `place`.
    pub(crate) fn new(load: &Load, place: usize) -> Self {
        Self {
            schedule: Schedule::of(load.rate),
            events: load.events,
            batch: load.batch,
            window: load.window,
            connections: load.connections as u64,
            next_frame: place as u64,
            in_flight: VecDeque::new(),
            in_flight_events: 0,
            late: 0,
        }
    }

    fn upcoming(&self) -> Option<Frame> {
        let number = self.next_frame;
        let first = number.checked_mul(self.batch).filter(|first| *first < self.events)?;
        Some(Frame { number, first, count: self.batch.min(self.events - first) })
    }

    /// When `frame` is complete, and so may go.
    fn due(&self, frame: Frame) -> Option<Duration> {
        self.schedule.intended(frame.first + frame.count - 1)
    }

    /// The next frame to be sent now; none if the window is full, its time has not come, or all
    /// are sent.
    pub(crate) fn next(&mut self, now: Duration) -> Option<Frame> {
        let frame = self.upcoming()?;
        let due = self.due(frame);
        // A batch that is larger than the window goes alone.
        let has_room =
            self.in_flight.is_empty() || self.in_flight_events + frame.count <= self.window;
        if !has_room || due.is_some_and(|due| due > now) {
            return None;
        }
        if due.is_some_and(|due| now - due > LATE) {
            self.late += frame.count;
        }
        self.in_flight.push_back(Sent { frame, at: now });
        self.in_flight_events += frame.count;
        self.next_frame += self.connections;
        Some(frame)
    }

    /// When `event` counts as sent, if it goes `now`.
    pub(crate) fn stamp(&self, event: u64, now: Duration) -> Duration {
        self.schedule.intended(event).unwrap_or(now)
    }

    /// The oldest frame that is out was answered. Hands latencies to `record`, with how many events
    /// had each, and says how many events that was.
    pub(crate) fn answered(
        &mut self,
        now: Duration,
        mut record: impl FnMut(Duration, u64),
    ) -> Option<u64> {
        let Sent { frame, at } = self.in_flight.pop_front()?;
        self.in_flight_events -= frame.count;
        match self.schedule {
            Schedule::FlatOut => record(now.saturating_sub(at), frame.count),
            Schedule::Steady { .. } => {
                for event in frame.first..frame.first + frame.count {
                    record(now.saturating_sub(self.stamp(event, at)), 1);
                }
            }
        }
        Some(frame.count)
    }

    /// Whether everything is sent and answered.
    pub(crate) fn is_done(&self) -> bool {
        self.in_flight.is_empty() && self.upcoming().is_none()
    }

    /// How many events went later than they were meant to.
    pub(crate) const fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests;
