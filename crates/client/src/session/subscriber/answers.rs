//! What the server's answers change.

use std::collections::HashSet;
use std::time::Instant;

use prombus_proto::frame::{AfterNack, Membership, Outcome};
use prombus_proto::{ErrorCode, EventId, RandomSource};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::{Link, PendingOp, Subscriber};
use crate::error::Refusal;
use crate::session::requests::RetryPolicy;
use crate::{Error, Result};

impl Subscriber {
    /// The server answered OK. Fails if the answer does not fit the op.
    pub(in crate::session) fn answered(&mut self, op: PendingOp, outcome: Outcome) -> Result<()> {
        self.unanswered -= 1;
        let needed_storage = !matches!(
            op,
            PendingOp::Pause | PendingOp::Resume | PendingOp::Nack | PendingOp::ModAck(_)
        );
        match op {
            PendingOp::Subscribe => {
                self.link = Link::Subscribed { is_paused: false };
                if let Some(started) = self.spec.started.take() {
                    let _ = started.send(Ok(()));
                }
            }
            PendingOp::Unsubscribe => self.unsubscribed(),
            PendingOp::Pause | PendingOp::Resume => self.answer_pause_replies(),
            PendingOp::Seen(ids) => self.checked(ids, outcome)?,
            PendingOp::Mark(ids) => {
                self.link = Link::Unsubscribed;
                for id in ids {
                    self.unconfirmed.remove(&id);
                }
            }
            PendingOp::Ack { ids, .. } => {
                for id in ids {
                    self.unconfirmed.remove(&id);
                    self.confirmed(id);
                }
            }
            PendingOp::AckAndPublish { id, .. } => self.confirmed(id),
            PendingOp::Nack | PendingOp::ModAck(_) => {}
        }
        if needed_storage {
            (self.failures, self.retry_at) = (0, None);
        }
        Ok(())
    }

    fn checked(&mut self, ids: Vec<EventId>, outcome: Outcome) -> Result<()> {
        let marked: HashSet<_> = match outcome {
            Outcome::Seen(ids) => ids.into_iter().collect(),
            other => {
                return Err(Error::NotUnderstood(format!("unexpected answer to SEEN: {other:?}")));
            }
        };
        for id in ids {
            if self.deliveries.checked(&id, marked.contains(&id)) {
                self.outbound.ack_only.push(id);
            }
        }
        Ok(())
    }

    fn confirmed(&mut self, id: EventId) {
        if self.deliveries.confirmed(&id) {
            self.outbound.ack_only.push(id);
        }
    }

    /// The server refused. Fails if the subscription cannot continue.
    pub(in crate::session) fn refused(
        &mut self,
        op: PendingOp,
        refusal: Refusal,
        now: Instant,
        policy: &RetryPolicy,
        random: &dyn RandomSource,
    ) -> Result<()> {
        self.unanswered -= 1;
        let is_retryable = match refusal.code {
            // Without a time, the limit can never admit the frame.
            ErrorCode::RateLimited => refusal.retry_after.is_some(),
            code => code.is_retryable(),
        };
        if is_retryable && !matches!(op, PendingOp::Nack | PendingOp::ModAck(_)) {
            let wait = refusal.retry_after.unwrap_or_else(|| policy.wait(self.failures, random));
            self.failures += 1;
            self.retry_at = self.retry_at.max(Some(now + wait));
        }
        match op {
            PendingOp::Subscribe if is_retryable => self.link = Link::Unsubscribed,
            PendingOp::Subscribe => return Err(refusal.into()),
            PendingOp::Unsubscribe => self.unsubscribed(),
            PendingOp::Pause | PendingOp::Resume => {
                for reply in self.pause_replies.drain(..) {
                    let _ = reply.send(Err(refusal.clone().into()));
                }
            }
            PendingOp::Seen(ids) if is_retryable => {
                for id in ids.into_iter().rev() {
                    self.outbound.unchecked.push_front(id);
                }
            }
            PendingOp::Seen(_) => return Err(refusal.into()),
            PendingOp::Mark(ids) => {
                self.link = Link::Unsubscribed;
                if refusal.is_too_much_at_once() && ids.len() > 1 {
                    self.marks_per_frame = ids.len() / 2;
                } else if !is_retryable {
                    self.give_up_marking(&ids, &refusal);
                }
            }
            PendingOp::Ack { ids, marks } => self.ack_refused(ids, marks, &refusal, is_retryable),
            PendingOp::AckAndPublish { id, frame } => {
                self.output_refused(id, frame, &refusal, is_retryable);
            }
            PendingOp::ModAck(id) if refusal.code == ErrorCode::LeaseLost => {
                self.deliveries.lease_lost(&id);
            }
            PendingOp::Nack | PendingOp::ModAck(_) => {}
        }
        Ok(())
    }

    fn ack_refused(
        &mut self,
        ids: Vec<EventId>,
        marks: bool,
        refusal: &Refusal,
        is_retryable: bool,
    ) {
        match (is_retryable, marks) {
            _ if marks && refusal.is_too_much_at_once() && ids.len() > 1 => {
                self.marks_per_frame = ids.len() / 2;
                self.outbound.handled.extend(ids);
            }
            (true, true) => self.outbound.handled.extend(ids),
            (true, false) => self.outbound.ack_only.extend(ids),
            (false, _) => {
                if marks {
                    self.give_up_marking(&ids, refusal);
                }
                for id in ids {
                    self.unconfirmed.remove(&id);
                    self.deliveries.remove(&id);
                }
            }
        }
    }

    fn output_refused(
        &mut self,
        id: EventId,
        frame: Utf8Bytes,
        refusal: &Refusal,
        is_retryable: bool,
    ) {
        match refusal.code {
            // Somebody else has marked it meanwhile, so it is done.
            ErrorCode::Conflict => self.outbound.ack_only.push(id),
            ErrorCode::LeaseLost => self.deliveries.remove(&id),
            _ if is_retryable => self.outbound.produced.push_front((id, frame)),
            _ => self.give_back(id, refusal.to_string(), AfterNack::BackOff),
        }
    }

    fn give_up_marking(&mut self, ids: &[EventId], refusal: &Refusal) {
        let Membership { topic, group } = &self.spec.membership;
        let count = ids.len();
        tracing::warn!(
            %topic, %group, count,
            "cannot mark handled events: {refusal}; if redelivered, they are handled again"
        );
        for id in ids {
            self.unconfirmed.remove(id);
        }
    }
}
