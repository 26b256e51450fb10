//! What one publishing connection sends when, and the latencies of its answers. It does no I/O and
//! takes the time as an argument.
//!
//! All times are relative to the start of the run. In an open loop, the latency of an event starts
//! at its scheduled time. A stall of the server thus counts for every event that had to wait, not
//! only for those in flight: there is no coordinated omission.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Load;
use crate::load::schedule::Schedule;

/// An event sent this long after its scheduled time is late. Timers and wake-ups take less on a
/// machine that is not overloaded.
const LATE: Duration = Duration::from_millis(1);

/// One connection's share of a load.
#[derive(Debug)]
pub(crate) struct SendPlan {
    schedule: Schedule,
    events: u64,
    batch: u64,
    window: u64,
    /// The stride of `next_frame`: connections take frames in turn.
    connections: u64,
    next_frame: u64,
    in_flight: VecDeque<Sent>,
    in_flight_events: u64,
    late: u64,
}

/// Events that go in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The index over all connections.
    pub(crate) number: u64,
    /// The index of its first event.
    pub(crate) first: u64,
    pub(crate) count: u64,
}

#[derive(Debug)]
struct Sent {
    frame: Frame,
    at: Duration,
}

impl SendPlan {
    /// Returns the share of the connection with this index.
    pub(crate) fn new(load: &Load, index: usize) -> Self {
        Self {
            schedule: Schedule::of(load.rate),
            events: load.events,
            batch: load.batch,
            window: load.window,
            connections: load.connections as u64,
            next_frame: index as u64,
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

    /// Returns when the last event of `frame` is due.
    fn due(&self, frame: Frame) -> Option<Duration> {
        self.schedule.time_of(frame.first + frame.count - 1)
    }

    /// Returns the next frame to send; `None` if the window is full, if no frame is due, or if all
    /// are sent.
    pub(crate) fn next(&mut self, now: Duration) -> Option<Frame> {
        let frame = self.upcoming()?;
        let due = self.due(frame);
        // A batch that exceeds the window is sent on its own.
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

    /// Returns when `event` counts as sent if it is sent `now`.
    pub(crate) fn stamp(&self, event: u64, now: Duration) -> Duration {
        self.schedule.time_of(event).unwrap_or(now)
    }

    /// The oldest frame in flight was answered. Passes latencies and the number of events with each
    /// to `record`, and returns the number of events. `None` if no frame is in flight.
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

    /// Returns `true` if everything is sent and answered.
    pub(crate) fn is_done(&self) -> bool {
        self.in_flight.is_empty() && self.upcoming().is_none()
    }

    /// Returns the number of events that were sent late.
    pub(crate) const fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests;
