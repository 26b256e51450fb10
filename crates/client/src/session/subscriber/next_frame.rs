//! Which frame a subscription sends next.

use std::time::Instant;

use prombus_proto::EventId;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::outbound::Failure;
use super::{AckMode, Link, PendingOp, Subscriber, Wanted};
use crate::session::frames::{self, MAX_IDS};

impl Subscriber {
    pub(in crate::session) fn next_frame(
        &mut self,
        now: Instant,
    ) -> Option<(Utf8Bytes, PendingOp)> {
        let next = match self.link {
            Link::Unsubscribed => self.next_while_unsubscribed(now),
            Link::Subscribed { is_paused } => self.next_while_subscribed(is_paused, now),
            Link::Marking | Link::Subscribing | Link::Unsubscribing => None,
        };
        self.unanswered += usize::from(next.is_some());
        next
    }

    fn next_while_unsubscribed(&mut self, now: Instant) -> Option<(Utf8Bytes, PendingOp)> {
        if self.is_backing_off(now) {
            return None;
        }
        let membership = &self.spec.membership;
        if let (AckMode::Marked(ttl), true) = (self.spec.mode, self.owes_marks()) {
            // Marked before SUBSCRIBE, because other members may get these events next and look
            // for the marks.
            let ids: Vec<_> = self.unconfirmed.iter().take(self.marks_per_frame).cloned().collect();
            self.link = Link::Marking;
            return Some((frames::mark(membership, &ids, ttl), PendingOp::Mark(ids)));
        }
        if self.wants_pause() {
            // It subscribes when it is resumed, so that no events are delivered meanwhile.
            return None;
        }
        self.link = Link::Subscribing;
        Some((frames::subscribe(membership, &self.spec.opts), PendingOp::Subscribe))
    }

    fn next_while_subscribed(
        &mut self,
        is_paused: bool,
        now: Instant,
    ) -> Option<(Utf8Bytes, PendingOp)> {
        let membership = &self.spec.membership;
        let wants_pause = self.wants_pause();
        if is_paused != wants_pause {
            self.link = Link::Subscribed { is_paused: wants_pause };
            return Some(match wants_pause {
                true => (frames::pause(membership), PendingOp::Pause),
                false => (frames::resume(membership), PendingOp::Resume),
            });
        }
        if let Some(Failure { id, reason, next }) = self.outbound.failed.pop_front() {
            return Some((frames::nack(membership, id, reason, next), PendingOp::Nack));
        }
        if let Some(id) = self.outbound.extensions.pop_front() {
            let frame = frames::modack(membership, id.clone(), self.deliveries.extension());
            return Some((frame, PendingOp::ModAck(id)));
        }
        if !self.is_backing_off(now)
            && let Some(next) = self.next_result_or_question()
        {
            return Some(next);
        }
        let has_settled = self.deliveries.running() == 0 && self.outbound.has_no_acks();
        if self.wanted == Wanted::Stopped && has_settled && self.unanswered == 0 {
            self.link = Link::Unsubscribing;
            return Some((frames::unsubscribe(&self.spec.membership), PendingOp::Unsubscribe));
        }
        None
    }

    /// The frames that need storage, and so wait after a refusal.
    fn next_result_or_question(&mut self) -> Option<(Utf8Bytes, PendingOp)> {
        let membership = &self.spec.membership;
        if !self.outbound.ack_only.is_empty() {
            let ids = take_at_most(MAX_IDS, &mut self.outbound.ack_only);
            let frame = frames::ack(membership, &ids, None);
            return Some((frame, PendingOp::Ack { ids, marks: false }));
        }
        if !self.outbound.handled.is_empty() {
            let (mark, max) = match self.spec.mode {
                AckMode::Marked(ttl) => (Some(ttl), self.marks_per_frame),
                AckMode::Plain | AckMode::Transformed(_) => (None, MAX_IDS),
            };
            let ids = take_at_most(max, &mut self.outbound.handled);
            let frame = frames::ack(membership, &ids, mark);
            return Some((frame, PendingOp::Ack { ids, marks: mark.is_some() }));
        }
        if let Some((id, frame)) = self.outbound.produced.pop_front() {
            return Some((frame.clone(), PendingOp::AckAndPublish { id, frame }));
        }
        if !self.outbound.unchecked.is_empty() {
            let count = self.outbound.unchecked.len().min(MAX_IDS);
            let ids: Vec<_> = self.outbound.unchecked.drain(..count).collect();
            return Some((frames::seen(membership, &ids), PendingOp::Seen(ids)));
        }
        None
    }

    fn is_backing_off(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|at| at > now)
    }
}

fn take_at_most(max: usize, ids: &mut Vec<EventId>) -> Vec<EventId> {
    if ids.len() <= max { std::mem::take(ids) } else { ids.drain(..max).collect() }
}
