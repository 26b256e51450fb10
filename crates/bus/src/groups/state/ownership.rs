//! How one of several gateways comes to own a group, and loses or releases it.

use std::time::Instant;

use prombus_engine::{Expect, Version};
use prombus_proto::frame::EndReason;

use super::commands::ack_without_lease;
use super::effect::{Claim, ClaimOutcome, Effect, Joining, Loaded, StoredProgress};
use super::partition::{OwnedPartition, Ownership};
use super::pending::{FailedCommit, Waiter};
use super::{GroupName, GroupState};
use crate::error::Refusal;
use crate::groups::command::Nacked;

impl GroupState {
    /// Continues after [`Effect::Load`].
    pub(in crate::groups) fn loaded(&mut self, joining: Joining, group: Result<Loaded, Refusal>) {
        match group {
            Ok(loaded) => {
                self.properties = loaded.properties;
                let owned = OwnedPartition::resume(&loaded, self.rules());
                self.partition.ownership = Ownership::Sole(owned);
                self.admit(Joining { created: loaded.created, ..joining });
            }
            Err(refusal) => drop(joining.reply.send(Err(refusal))),
        }
    }

    /// Claims the group after its owner released it, or died with its lease at version `expired`.
    pub(super) fn take_over(&mut self, expired: Option<Version>) {
        let effect = if self.owned().is_none() && !self.members.is_empty() {
            Effect::Claim(Claim::TakeOver { expired, known: self.partition.known_version })
        } else {
            Effect::Unwatch
        };
        self.effects.push_back(effect);
    }

    /// Continues after [`Effect::Claim`].
    pub(in crate::groups) fn claimed(&mut self, claim: Claim, outcome: ClaimOutcome) {
        let joining = match claim {
            Claim::Join(joining) => Some(joining),
            Claim::TakeOver { .. } => None,
        };
        match outcome {
            ClaimOutcome::Claimed { group: loaded, epoch, version } => {
                if loaded.created {
                    self.end_members_of_deleted();
                }
                let GroupName { topic, group, .. } = &self.name;
                tracing::info!(%topic, %group, epoch, "this gateway delivers the group");
                self.properties = loaded.properties;
                let owned = OwnedPartition::resume(&loaded, self.rules());
                self.partition.known_version = Some(version);
                self.partition.ownership = Ownership::Owner { epoch, cursor: version, owned };
                self.effects.push_back(Effect::WatchProperties);
                if let Some(joining) = joining {
                    self.admit(Joining { created: loaded.created, ..joining });
                }
            }
            ClaimOutcome::OwnedElsewhere { properties, lease } => {
                self.properties = properties;
                self.partition.known_version = self.partition.known_version.or(lease);
                self.partition.ownership = Ownership::Standby;
                if let Some(joining) = joining {
                    self.effects.push_back(Effect::WatchLease);
                    self.admit(joining);
                }
            }
            ClaimOutcome::Deleted(reason) => {
                self.end_members(reason);
                self.effects.push_back(Effect::Unwatch);
            }
            ClaimOutcome::Failed(refusal) => self.claim_failed(joining, refusal),
            ClaimOutcome::Unclear(refusal) => {
                self.partition.ownership = Ownership::Claiming;
                self.claim_failed(joining, refusal);
            }
        }
    }

    /// Ends the subscriptions of members that are here although their group has just been created: it is not
    /// the one they joined, which another gateway has deleted.
    fn end_members_of_deleted(&mut self) {
        if !self.members.is_empty() {
            self.end_members(EndReason::GroupDeleted);
        }
    }

    fn claim_failed(&self, joining: Option<Joining>, refusal: Refusal) {
        let GroupName { topic, group, .. } = &self.name;
        match joining {
            Some(joining) => drop(joining.reply.send(Err(refusal))),
            None => tracing::warn!(%topic, %group, "cannot claim the group: {refusal}; retrying"),
        }
    }

    /// Returns `true` if the stored lease may name this gateway.
    pub(in crate::groups) fn may_hold_lease(&self) -> bool {
        use Ownership::{Claiming, Owner, Sole, Standby, Unclear, Unowned};
        match self.partition.ownership {
            Claiming | Owner { .. } | Unclear { epoch: Some(_), .. } => true,
            Unowned | Standby | Sole(_) | Unclear { epoch: None, .. } => false,
        }
    }

    /// Releases a group that no member needs, so that other gateways need not wait for this one to die.
    pub(super) fn release_if_unused(&mut self) -> Option<Effect> {
        let is_unused = self.may_hold_lease()
            && self.members.is_empty()
            && !self.is_dirty()
            && self.partition.retry_at.is_none();
        is_unused.then_some(Effect::Release)
    }

    /// Continues after [`Effect::Release`].
    pub(in crate::groups) fn released(&mut self, outcome: Result<(), Refusal>, now: Instant) {
        match outcome {
            Ok(()) => {
                self.partition.ownership = Ownership::Unowned;
                self.effects.push_back(Effect::Unwatch);
            }
            Err(refusal) => self.storage_failed("release the group", &refusal, now),
        }
    }

    /// Continues after [`Effect::ReadCursor`].
    pub(in crate::groups) fn cursor_read(
        &mut self,
        failed: Option<Box<FailedCommit>>,
        stored: Result<Option<StoredProgress>, Refusal>,
        now: Instant,
    ) {
        let epoch = self.partition.ownership.epoch();
        match stored {
            // Only this gateway stores cursors of its epoch: an answer was lost, or an election rolled back
            // a commit that was not durable yet.
            Ok(Some(stored)) if epoch.is_none() || stored.cursor.epoch == epoch => {
                self.partition.ownership.cursor_stored(stored.version);
                self.resolve(failed, &stored, now);
            }
            Ok(_) => {
                self.lose();
                answer_without_lease(failed.map_or_else(Vec::new, |failed| failed.waiters));
            }
            Err(refusal) => {
                if let Some(FailedCommit { waiters, error, .. }) = failed.map(|failed| *failed) {
                    let refusal = Refusal::from(error);
                    waiters.into_iter().for_each(|waiter| waiter.refused(refusal.clone()));
                }
                self.fail_pending("read the stored cursor", &refusal, now);
            }
        }
    }

    /// Stops delivering, because another gateway owns the group: leases of this one are void.
    pub(super) fn lose(&mut self) {
        let GroupName { topic, group, .. } = &self.name;
        tracing::warn!(%topic, %group, "another gateway delivers the group now");
        self.members.revoke_all();
        self.effects.push_back(Effect::WatchLease);
        if let Expect::Version(cursor) = self.partition.ownership.expected_cursor() {
            self.partition.known_version = Some(cursor);
        }
        let before = std::mem::replace(&mut self.partition.ownership, Ownership::Standby);
        if let Ownership::Owner { owned, .. } | Ownership::Unclear { owned, .. } = before {
            answer_without_lease(owned.pending.waiters);
        }
    }
}

pub(super) fn answer_without_lease(waiters: Vec<Waiter>) {
    for waiter in waiters {
        match waiter {
            Waiter::Ack { ack, published, .. } => ack_without_lease(ack, published > 0),
            // The receiver may have been dropped.
            Waiter::Nack { reply, .. } => drop(reply.send(Ok(Nacked { stale: true }))),
        }
    }
}
