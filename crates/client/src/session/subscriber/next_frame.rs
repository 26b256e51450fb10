//! What a subscription asks the server for next.

use std::time::Instant;

use prombus_proto::EventId;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::{Asked, Follower, Form, Place, SHORTEST_EXTENSION};
use crate::session::frames::{self, MOST_IDS};

impl Follower {
    /// The next frame for the server, and what it asks.
    pub(in crate::session) fn next_frame(&mut self, now: Instant) -> Option<(Utf8Bytes, Asked)> {
        let next = match self.place {
            Place::Away => self.next_when_away(now),
            Place::Here => self.next_when_here(now),
            Place::Asked | Place::Leaving => None,
        };
        self.unanswered += usize::from(next.is_some());
        next
    }

    fn next_when_away(&mut self, now: Instant) -> Option<(Utf8Bytes, Asked)> {
        if self.is_marking || self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        if let (Form::Marked(ttl), true) = (self.made.form, self.owes_marks()) {
            // Before anything is lent again: others may ask whether these are marked.
            self.is_marking = true;
            let ids: Vec<_> = self.finished.iter().take(self.marks_at_once).cloned().collect();
            return Some((frames::mark(&self.made.which, &ids, ttl), Asked::Mark(ids)));
        }
        if self.is_paused {
            // It comes back when it is resumed, so that nothing is lent to it meanwhile.
            return None;
        }
        self.place = Place::Asked;
        Some((frames::subscribe(&self.made.which, &self.made.opts), Asked::Subscribe))
    }

    fn next_when_here(&mut self, now: Instant) -> Option<(Utf8Bytes, Asked)> {
        let which = &self.made.which;
        if self.said_paused != self.is_paused {
            self.said_paused = self.is_paused;
            return Some(match self.is_paused {
                true => (frames::pause(which), Asked::Pause),
                false => (frames::resume(which), Asked::Resume),
            });
        }
        if let Some((id, reason, delay)) = self.failed.pop_front() {
            return Some((frames::nack(which, id, reason, delay), Asked::Nack));
        }
        if let Some(id) = self.to_extend.pop_front() {
            let extend = self.lease.max(SHORTEST_EXTENSION);
            return Some((frames::modack(which, id.clone(), extend), Asked::ModAck(id)));
        }
        if self.not_before.is_none_or(|at| at <= now) {
            if !self.known.is_empty() {
                let ids = take_some(&mut self.known);
                return Some((frames::ack(which, &ids, None), Asked::Ack { ids, marks: false }));
            }
            if !self.done.is_empty() {
                let ids = take_some(&mut self.done);
                let mark = match self.made.form {
                    Form::Marked(ttl) => Some(ttl),
                    Form::Plain | Form::Transformed(_) => None,
                };
                let frame = frames::ack(which, &ids, mark);
                return Some((frame, Asked::Ack { ids, marks: mark.is_some() }));
            }
            if let Some((id, frame)) = self.produced.pop_front() {
                return Some((frame.clone(), Asked::Produce { id, frame }));
            }
            if !self.unchecked.is_empty() {
                let count = self.unchecked.len().min(MOST_IDS);
                let ids: Vec<_> = self.unchecked.drain(..count).collect();
                return Some((frames::seen(which, &ids), Asked::Seen(ids)));
            }
        }
        if self.is_stopping && self.running == 0 && self.owes_nothing() && self.unanswered == 0 {
            self.place = Place::Leaving;
            return Some((frames::unsubscribe(which), Asked::Unsubscribe));
        }
        None
    }

    fn owes_nothing(&self) -> bool {
        self.done.is_empty() && self.known.is_empty() && self.produced.is_empty()
    }
}

fn take_some(ids: &mut Vec<EventId>) -> Vec<EventId> {
    if ids.len() <= MOST_IDS { std::mem::take(ids) } else { ids.drain(..MOST_IDS).collect() }
}
