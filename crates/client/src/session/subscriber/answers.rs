//! What the server answered, and what comes of it.

use std::collections::HashSet;
use std::time::Instant;

use prombus_proto::frame::{Membership, Outcome};
use prombus_proto::{ErrorCode, EventId, RandomSource};

use super::{Asked, Follower, Place, Stage};
use crate::error::Refusal;
use crate::session::requests::Retrying;
use crate::{Error, Result};

impl Follower {
    /// The server did what it was asked. Fails where the answer is none to that.
    pub(in crate::session) fn answered(&mut self, asked: Asked, outcome: Outcome) -> Result<()> {
        self.unanswered -= 1;
        // These say nothing about the storage.
        let is_small =
            matches!(asked, Asked::Pause | Asked::Resume | Asked::Nack | Asked::ModAck(_));
        match asked {
            Asked::Subscribe => {
                self.place = Place::Here;
                self.said_paused = false;
                if let Some(started) = self.made.started.take() {
                    let _ = started.send(Ok(()));
                }
            }
            Asked::Unsubscribe => self.leave(),
            Asked::Pause | Asked::Resume => self.tell_waiting(),
            Asked::Seen(ids) => self.checked(ids, outcome)?,
            Asked::Mark(ids) => {
                self.is_marking = false;
                for id in ids {
                    self.finished.remove(&id);
                }
            }
            Asked::Ack { ids, .. } => {
                for id in ids {
                    self.finished.remove(&id);
                    self.settled(id);
                }
            }
            Asked::Produce { id, .. } => self.settled(id),
            Asked::Nack | Asked::ModAck(_) => {}
        }
        if !is_small {
            (self.failures, self.not_before) = (0, None);
        }
        Ok(())
    }

    fn checked(&mut self, ids: Vec<EventId>, outcome: Outcome) -> Result<()> {
        let marked = seen_of(outcome)?;
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id).filter(|it| it.stage == Stage::Unchecked)
            else {
                continue;
            };
            if marked.contains(&id) {
                entry.stage = Stage::Settling;
                self.known.push(id);
            } else {
                entry.stage = Stage::Ready;
                self.ready.push_back(id);
            }
        }
        Ok(())
    }

    /// The server knows what became of it.
    fn settled(&mut self, id: EventId) {
        match self.entries.get_mut(&id) {
            // It came again before that was known, so that it is to be said again.
            Some(entry) if entry.again => {
                entry.again = false;
                self.known.push(id);
            }
            _ => drop(self.entries.remove(&id)),
        }
    }

    /// The server refused what it was asked. Fails where the subscription cannot go on.
    pub(in crate::session) fn refused(
        &mut self,
        asked: Asked,
        refusal: Refusal,
        now: Instant,
        retrying: &Retrying,
        random: &dyn RandomSource,
    ) -> Result<()> {
        self.unanswered -= 1;
        let Refusal { code, retry_after, .. } = &refusal;
        // A rate that no time helps is final.
        let may_pass = match code {
            ErrorCode::RateLimited => retry_after.is_some(),
            code => code.is_retryable(),
        };
        if may_pass && !matches!(asked, Asked::Nack | Asked::ModAck(_)) {
            let wait = retry_after.unwrap_or_else(|| retrying.wait(self.failures, random));
            self.failures += 1;
            self.not_before = self.not_before.max(Some(now + wait));
        }
        match asked {
            Asked::Subscribe if may_pass => self.place = Place::Away,
            Asked::Subscribe => return Err(refusal.into()),
            Asked::Unsubscribe => self.leave(),
            Asked::Pause | Asked::Resume => {
                for reply in self.waiting.drain(..) {
                    let _ = reply.send(Err(refusal.clone().into()));
                }
            }
            Asked::Seen(ids) if may_pass => {
                for id in ids.into_iter().rev() {
                    self.unchecked.push_front(id);
                }
            }
            Asked::Seen(_) => return Err(refusal.into()),
            Asked::Mark(ids) => {
                self.is_marking = false;
                if refusal.is_too_much_at_once() && ids.len() > 1 {
                    self.marks_at_once = ids.len() / 2;
                } else if !may_pass {
                    self.cannot_mark(&ids, &refusal);
                }
            }
            Asked::Ack { ids, marks } if may_pass => {
                if marks { &mut self.done } else { &mut self.known }.extend(ids);
            }
            Asked::Ack { ids, marks } => {
                if marks {
                    self.cannot_mark(&ids, &refusal);
                }
                for id in ids {
                    self.finished.remove(&id);
                    self.entries.remove(&id);
                }
            }
            Asked::Produce { id, .. } if *code == ErrorCode::Conflict => self.known.push(id),
            Asked::Produce { id, .. } if *code == ErrorCode::LeaseLost => {
                self.entries.remove(&id);
            }
            Asked::Produce { id, frame } if may_pass => self.produced.push_front((id, frame)),
            Asked::Produce { id, .. } => self.give_back(id, refusal.to_string(), None),
            Asked::ModAck(id) if *code == ErrorCode::LeaseLost => self.lease_lost(&id),
            Asked::Nack | Asked::ModAck(_) => {}
        }
        Ok(())
    }

    fn cannot_mark(&mut self, ids: &[EventId], refusal: &Refusal) {
        let Membership { topic, group } = &self.made.which;
        let count = ids.len();
        tracing::warn!(%topic, %group, count, "events are handled and cannot be marked: {refusal}");
        for id in ids {
            self.finished.remove(id);
        }
    }

    fn lease_lost(&mut self, id: &EventId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        match entry.stage {
            Stage::Running => {
                entry.extend_at = None;
                entry.delivery.lease.lose();
            }
            Stage::Unchecked | Stage::Ready => drop(self.entries.remove(id)),
            Stage::Settling => {}
        }
    }
}

fn seen_of(outcome: Outcome) -> Result<HashSet<EventId>> {
    match outcome {
        Outcome::Seen(ids) => Ok(ids.into_iter().collect()),
        other => Err(Error::NotUnderstood(format!("an answer to SEEN: {other:?}"))),
    }
}
