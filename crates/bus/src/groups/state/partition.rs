//! One partition of a group: who owns it, and what its owner works on.
//!
//! A group has a single partition today. Owner, cursor and epoch belong to the partition, so that a group
//! can have several.

use std::time::Instant;

use prombus_engine::{Expect, Version};
use prombus_proto::Seq;

use super::effect::Loaded;
use super::fetched::Fetched;
use super::nack_reasons::NackReasons;
use super::pending::{CommitDraft, CommitInFlight, DeadLetterPending};
use crate::groups::RetryRules;
use crate::groups::leases::{AfterLease, EndedLease, Leases, MAX_REOPENED};
use crate::spans::DeliverySpans;
use crate::stored::redrive::Redrive;
use crate::time::Moment;

#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) ownership: Ownership,
    /// The version of the cursor or lease as this gateway saw it last, on a shared store.
    pub(super) known_version: Option<Version>,
    /// After the storage failed: nothing is read, committed or released before this.
    pub(super) retry_at: Option<Instant>,
}

/// Which gateway delivers the partition.
#[derive(Debug, Default)]
pub(super) enum Ownership {
    /// Not loaded: no member has joined, or the partition was released.
    #[default]
    Unowned,
    /// Another gateway owns it, and this one watches that gateway's lease.
    Standby,
    /// A claim was submitted and its outcome is unknown: the stored lease may name this gateway.
    Claiming,
    /// This process is the only one that uses the store.
    Sole(Box<OwnedPartition>),
    /// This gateway holds the lease with this epoch, and stored the cursor of this version.
    Owner { epoch: u64, cursor: Version, owned: Box<OwnedPartition> },
    /// Like `Owner`, or like `Sole` without an epoch, but the last commit had no clear answer: the stored
    /// cursor has to be read before the next delivery and the next commit.
    Unclear { epoch: Option<u64>, owned: Box<OwnedPartition> },
}

/// What the owner of a partition works on.
#[derive(Debug)]
pub(super) struct OwnedPartition {
    pub(super) leases: Leases,
    pub(super) fetched: Fetched,
    /// What the next commit stores.
    pub(super) pending: CommitDraft,
    pub(super) commit: Option<CommitInFlight>,
    reasons: NackReasons,
    pub(super) spans: DeliverySpans,
    /// Whether more redriven events may be stored than there was room for.
    pub(super) has_more_redrives: bool,
}

impl Partition {
    pub(super) fn end_back_off(&mut self, now: Instant) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
    }
}

impl Ownership {
    pub(super) fn owned(&self) -> Option<&OwnedPartition> {
        match self {
            Self::Sole(owned) | Self::Owner { owned, .. } | Self::Unclear { owned, .. } => {
                Some(owned)
            }
            Self::Unowned | Self::Standby | Self::Claiming => None,
        }
    }

    pub(super) fn owned_mut(&mut self) -> Option<&mut OwnedPartition> {
        match self {
            Self::Sole(owned) | Self::Owner { owned, .. } | Self::Unclear { owned, .. } => {
                Some(owned)
            }
            Self::Unowned | Self::Standby | Self::Claiming => None,
        }
    }

    pub(super) fn into_owned(self) -> Option<Box<OwnedPartition>> {
        match self {
            Self::Sole(owned) | Self::Owner { owned, .. } | Self::Unclear { owned, .. } => {
                Some(owned)
            }
            Self::Unowned | Self::Standby | Self::Claiming => None,
        }
    }

    /// The epoch of the lease, where the group has one.
    pub(super) const fn epoch(&self) -> Option<u64> {
        match self {
            Self::Owner { epoch, .. } => Some(*epoch),
            Self::Unclear { epoch, .. } => *epoch,
            Self::Unowned | Self::Standby | Self::Claiming | Self::Sole(_) => None,
        }
    }

    /// The condition under which the next cursor may be stored.
    pub(super) const fn expected_cursor(&self) -> Expect {
        match self {
            Self::Owner { cursor, .. } => Expect::Version(*cursor),
            _ => Expect::Any,
        }
    }

    pub(super) const fn is_unclear(&self) -> bool {
        matches!(self, Self::Unclear { .. })
    }

    /// Records that this gateway stored the cursor `version`.
    pub(super) fn cursor_stored(&mut self, version: Version) {
        *self = match std::mem::take(self) {
            Self::Owner { epoch, owned, .. } | Self::Unclear { epoch: Some(epoch), owned } => {
                Self::Owner { epoch, cursor: version, owned }
            }
            Self::Unclear { epoch: None, owned } => Self::Sole(owned),
            other => other,
        };
    }

    /// Records that the outcome of the last commit is unknown.
    pub(super) fn commit_unclear(&mut self) {
        *self = match std::mem::take(self) {
            Self::Owner { epoch, owned, .. } => Self::Unclear { epoch: Some(epoch), owned },
            Self::Sole(owned) => Self::Unclear { epoch: None, owned },
            other => other,
        };
    }
}

impl OwnedPartition {
    /// Resumes where a group that was read from the store had got to.
    pub(super) fn resume(loaded: &Loaded, rules: RetryRules) -> Box<Self> {
        let cursor_changed = loaded.cursor.is_ahead_of(loaded.at.timestamp);
        let mut owned = Box::new(Self {
            leases: Leases::resume(&loaded.cursor, rules, loaded.at),
            fetched: Fetched::up_to(loaded.topic_end),
            pending: CommitDraft { cursor_changed, ..CommitDraft::default() },
            commit: None,
            reasons: NackReasons::default(),
            spans: DeliverySpans::default(),
            has_more_redrives: false,
        });
        owned.reopen(&loaded.redrives, loaded.at);
        owned
    }

    /// Delivers the `redrives` again, which were read at `read_at`, as far as there is room for them.
    pub(super) fn reopen(&mut self, redrives: &[(Seq, Redrive)], read_at: Moment) {
        self.has_more_redrives = redrives.len() >= MAX_REOPENED;
        for (seq, redrive) in redrives {
            if self.leases.room_for_redrives() == 0 {
                self.has_more_redrives = true;
                break;
            }
            self.leases.reopen(*seq, *redrive, read_at);
        }
    }

    /// Returns `true` if redriven events have to be read.
    pub(super) fn wants_redrives(&self) -> bool {
        self.has_more_redrives && self.leases.room_for_redrives() >= MAX_REOPENED / 2
    }

    /// Records that `seq` is done.
    pub(super) fn finish(&mut self, seq: Seq) {
        self.leases.finish(seq);
        self.reasons.forget(seq);
    }

    /// Returns why `seq` failed last, if a member said so to this process.
    pub(super) fn last_reason(&self, seq: Seq) -> Option<&str> {
        self.reasons.get(seq)
    }

    /// Returns `true` if it knows why an event failed, which is not stored.
    pub(super) fn remembers_reasons(&self) -> bool {
        !self.reasons.is_empty()
    }

    /// Records the end of a lease in the next commit, with a dead letter if that follows. `what` happened to
    /// the lease; `reason` is what the member said.
    pub(super) fn record_end(&mut self, ended: &EndedLease, what: &str, reason: Option<&str>) {
        self.pending.cursor_changed = true;
        let seq = ended.seq;
        match (ended.next, reason) {
            (AfterLease::Redeliver, Some(reason)) => {
                self.reasons.keep(seq, reason, self.leases.floor());
            }
            (AfterLease::Redeliver, None) => {}
            (AfterLease::DeadLetter, reason) => {
                let earlier = self.reasons.take(seq);
                let error = match (reason, earlier) {
                    (Some(reason), _) => reason.to_owned(),
                    (None, Some(earlier)) => {
                        format!("{what}; the last reason that was given: {earlier}")
                    }
                    (None, None) => what.to_owned(),
                };
                let mut letter = DeadLetterPending::of(seq, error, ended.attempts.deliveries);
                letter.copy = self.leases.letter_of(seq);
                self.pending.dead_letters.push(letter);
            }
        }
    }
}
