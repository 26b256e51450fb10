//! What operators do to a group: they move it, redrive dead letters, and look at it.

use std::time::Instant;

use prombus_engine::{Expect, StateOp};
use prombus_proto::Seq;

use super::effect::{Claim, Effect, Loaded, Moved, Seeking};
use super::ownership::answer_without_lease;
use super::partition::{OwnedPartition, Ownership};
use super::{GroupName, GroupState};
use crate::error::Refusal;
use crate::groups::command::{Inspection, OldestOpen, WhyUnfinished};
use crate::stored::redrive::Redrive;
use crate::time::Moment;

impl GroupName {
    /// Returns what stores a change of a redriven event.
    pub(super) fn redrive_change(&self, (seq, redrive): (Seq, Option<Redrive>)) -> StateOp {
        let key = Redrive::key(&self.topic, &self.group, seq);
        match redrive {
            Some(redrive) => StateOp::Put {
                key,
                value: redrive.encode().into(),
                expires_at: None,
                expect: Expect::Any,
            },
            None => StateOp::Delete { key, expect: Expect::Any },
        }
    }
}

impl GroupState {
    /// Continues after [`Effect::Seek`]. Members stay, and their leases are lost.
    pub(in crate::groups) fn sought(
        &mut self,
        Seeking { next, reply, .. }: Seeking,
        outcome: Result<Moved, Refusal>,
    ) {
        let answer = outcome.map(|Moved { marks_removed, sole }| {
            let GroupName { topic, group, .. } = &self.name;
            tracing::info!(%topic, %group, %next, "an operator moved the group");
            match sole {
                Some(loaded) => self.resume_at(&loaded),
                // The stored lease names nobody.
                None => self.changed_elsewhere(),
            }
            marks_removed
        });
        // The receiver may have been dropped.
        let _ = reply.send(answer);
    }

    /// Forgets the leases of this group, which no other gateway can own, and goes on with what is stored.
    fn resume_at(&mut self, loaded: &Loaded) {
        if self.owned().is_none() {
            return;
        }
        self.members.revoke_all();
        self.partition.retry_at = None;
        let owned = Ownership::Sole(OwnedPartition::resume(loaded, self.rules()));
        let before = std::mem::replace(&mut self.partition.ownership, owned);
        if let Some(owned) = before.into_owned() {
            answer_without_lease(owned.pending.waiters);
        }
    }

    /// Reads the stored cursor again: a seek or a redrive may have changed the stored group without its owner.
    pub(super) fn changed_elsewhere(&mut self) {
        let effect = if self.owned().is_some() {
            self.partition.ownership.commit_unclear();
            // If its epoch is another one, a seek has taken the group from this gateway.
            Some(Effect::ReadCursor(None))
        } else if self.members.is_empty() {
            None
        } else {
            let known = self.partition.known_version;
            Some(Effect::Claim(Claim::TakeOver { expired: None, known }))
        };
        self.effects.extend(effect);
        self.effects.extend(self.owned().map(|_| Effect::ReadRedrives));
    }

    /// Continues after [`Effect::ReadRedrives`]. No commit is in flight.
    pub(in crate::groups) fn redrives_read(
        &mut self,
        redrives: Result<Vec<(Seq, Redrive)>, Refusal>,
        read_at: Moment,
    ) {
        match (redrives, self.owned_mut()) {
            (Ok(redrives), Some(owned)) => owned.reopen(&redrives, read_at),
            (Ok(_), None) => {}
            (Err(refusal), owned) => {
                // They are read again when the storage is tried again.
                if let Some(owned) = owned {
                    owned.has_more_redrives = true;
                }
                self.storage_failed("read redriven events", &refusal, read_at.instant);
            }
        }
    }

    pub(super) fn inspect(&self, now: Instant) -> Inspection {
        let undelivered = self.members.why_nothing_is_taken();
        let oldest = self.owned().and_then(|owned| {
            let (seq, slot) = owned.leases.oldest_open()?;
            let last_reason = owned.last_reason(seq).map(str::to_owned);
            let why = slot.state.why(now).unwrap_or({
                match undelivered {
                    WhyUnfinished::Ready | WhyUnfinished::MembersBusy
                        if owned.leases.is_suspect(seq) =>
                    {
                        WhyUnfinished::WaitsToBeAlone
                    }
                    _ => undelivered,
                }
            });
            let id = slot.identity.as_ref().map(|(id, _)| id.clone());
            Some(OldestOpen { seq, id, attempts: slot.attempts, last_reason, why })
        });
        Inspection {
            is_owned: self.owned().is_some(),
            members: self.members.details(),
            oldest,
            undelivered,
        }
    }
}
