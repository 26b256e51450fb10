//! The effects of a group, performed on the engine and the committer.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use prombus_engine::{
    CommitError, Durability, Expect, Position, ReadBudget, ReadError, StateEntry, StateKey,
    StateOp, Unavailable, Version,
};
use prombus_proto::frame::EndReason;
use prombus_proto::limits::{MAX_BATCH_BYTES, MAX_EVENT_BYTES};
use prombus_proto::{EncodedEvent, ErrorCode, EventId, Seq, Topic};

use super::GroupContext;
use crate::dead_letters::DeadLetter;
use crate::error::Refusal;
use crate::groups::command::Acked;
use crate::groups::leases::MAX_REOPENED;
use crate::groups::state::{
    Claim, ClaimOutcome, DeadLetterPending, GroupName, Loaded, ReadOutcome, StoredAck,
    StoredProgress,
};
use crate::limits::GroupPermit;
use crate::publish::{CommitResult, Committer, Submission};
use crate::sharing::GroupLeases;
use crate::stored::cursor::Cursor;
use crate::stored::deletion::Deleted;
use crate::stored::group_lease::GroupLease;
use crate::stored::group_properties::GroupProperties;
use crate::stored::mark::are_marked;
use crate::stored::redrive::Redrive;
use crate::time::{Moment, now};
use crate::topics::{FeedEvent, StartAt, TopicInUse};

pub(super) struct GroupStore {
    pub(super) ctx: GroupContext,
    pub(super) topic: Arc<TopicInUse>,
    pub(super) name: GroupName,
    keys: GroupKeys,
    pub(super) dead_letters: Topic,
}

/// Where a group is stored, besides its cursor.
pub(super) struct GroupKeys {
    pub(super) lease: StateKey,
    pub(super) properties: StateKey,
}

/// The commit that makes this gateway the owner of a group.
struct PreparedClaim {
    submission: Submission,
    group: Loaded,
    epoch: u64,
    /// For a group that is created.
    permit: Option<GroupPermit>,
}

/// Bytes of dead letters in one commit: each holds its original, and a commit has its limit.
const MAX_DEAD_LETTER_BYTES: usize = 4 << 20;
const _: () = assert!(MAX_DEAD_LETTER_BYTES + MAX_EVENT_BYTES < MAX_BATCH_BYTES);

impl GroupStore {
    pub(super) const fn new(
        ctx: GroupContext,
        topic: Arc<TopicInUse>,
        name: GroupName,
        keys: GroupKeys,
        dead_letters: Topic,
    ) -> Self {
        Self { ctx, topic, name, keys, dead_letters }
    }

    /// Reads the cursor of a group that no other gateway can own, or stores the first one.
    pub(super) async fn load(&self, start: &StartAt) -> Result<Loaded, Refusal> {
        let known = self.cursor().await?;
        let created = known.is_none();
        let cursor = match known {
            Some((cursor, _)) => cursor,
            None => {
                let permit = self.ctx.census.permit_group(&self.name.topic)?;
                let cursor = self.first_cursor(start).await?;
                let put = self.put_cursor(&cursor, Expect::Any);
                self.commit(Submission::of_state(vec![put], self.topic.durability())).await?;
                if let Some(permit) = permit {
                    permit.created();
                }
                cursor
            }
        };
        let redrives = self.redrives().await?;
        let (topic_end, properties) = (self.topic_end().await?, self.properties().await?);
        Ok(Loaded { cursor, redrives, topic_end, properties, at: self.moment(), created })
    }

    /// Makes this gateway the owner of the group, unless another one is.
    pub(super) async fn claim(&self, claim: &Claim) -> ClaimOutcome {
        let properties = match self.properties().await {
            Ok(properties) => properties,
            Err(refusal) => return ClaimOutcome::Failed(refusal),
        };
        let Some(leases) = &self.ctx.group_leases else {
            return ClaimOutcome::OwnedElsewhere { properties, lease: None };
        };
        let prepared = match self.prepare_claim(leases, claim, properties).await {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(outcome)) => return outcome,
            Err(refusal) => return ClaimOutcome::Failed(refusal),
        };
        let PreparedClaim { submission, group, epoch, permit } = prepared;
        match self.commit(submission).await {
            Ok(stored) => {
                if let Some(permit) = permit {
                    permit.created();
                }
                ClaimOutcome::Claimed { group, epoch, version: stored.version }
            }
            // Another gateway stored a lease at the same time.
            Err(CommitError::Conflict(_)) => {
                let lease = self.lease().await.ok().flatten().map(|(_, version)| version);
                ClaimOutcome::OwnedElsewhere { properties, lease }
            }
            Err(error) => ClaimOutcome::Unclear(error.into()),
        }
    }

    /// Returns the commit that makes this gateway the owner, or the outcome if it cannot be. It replaces the
    /// cursor as well, which fences the previous owner.
    async fn prepare_claim(
        &self,
        leases: &GroupLeases,
        claim: &Claim,
        properties: GroupProperties,
    ) -> Result<Result<PreparedClaim, ClaimOutcome>, Refusal> {
        // A group that was ever owned has a cursor, so a takeover needs no start.
        let (start, expired, joined_at) = match claim {
            Claim::Join(joining) => (&joining.start, None, None),
            Claim::TakeOver { expired, known } => (&StartAt::Latest, *expired, *known),
        };
        let gateway = leases.heartbeat.gateway();
        let lease = self.lease().await?;
        if let Some((GroupLease { holder: Some(holder), .. }, version)) = &lease
            // A lease that names this gateway is left from a claim without an answer.
            && holder != gateway
            && Some(*version) != expired
        {
            return Ok(Err(ClaimOutcome::OwnedElsewhere { properties, lease: Some(*version) }));
        }
        if !leases.heartbeat.is_trusted(now()) {
            // The owner of a group has to be seen alive.
            leases.heartbeat.store(self.ctx.engine.as_ref(), self.ctx.clock.as_ref()).await?;
        }
        let known = self.cursor().await?;
        let created = known.is_none();
        let deleted_since = self.deleted_since(joined_at).await?;
        if created && matches!(claim, Claim::TakeOver { .. }) {
            let reason = deleted_since.unwrap_or(EndReason::GroupDeleted);
            return Ok(Err(ClaimOutcome::Deleted(reason)));
        }
        if let Some(reason) = deleted_since {
            return Ok(Err(ClaimOutcome::Deleted(reason)));
        }
        let (mut cursor, expect, permit) = match known {
            Some((cursor, version)) => (cursor, Expect::Version(version), None),
            None => {
                let permit = self.ctx.census.permit_group(&self.name.topic)?;
                (self.first_cursor(start).await?, Expect::Absent, permit)
            }
        };
        let topic_end = self.topic_end().await?;
        let last_epoch = lease.as_ref().map_or(0, |(lease, _)| lease.epoch);
        // A group that is created again after it was deleted must not get an epoch that an owner of the deleted
        // one may still believe to have.
        let first_epoch = if created { self.random_epoch() } else { 0 };
        let epoch = last_epoch.max(cursor.epoch.unwrap_or(first_epoch)) + 1;
        cursor.epoch = Some(epoch);
        let new_lease = GroupLease::of(gateway.clone(), epoch);
        let ops = vec![
            self.put_lease(&new_lease, lease.map(|(_, version)| version)),
            self.put_cursor(&cursor, expect),
        ];
        let submission = Submission::of_state(ops, Durability::Fsync);
        let redrives = self.redrives().await?;
        let group = Loaded { cursor, redrives, topic_end, properties, at: self.moment(), created };
        Ok(Ok(PreparedClaim { submission, group, epoch, permit }))
    }

    /// Returns what has deleted the group since its cursor or lease had the version `joined_at`. It may exist again.
    async fn deleted_since(
        &self,
        joined_at: Option<Version>,
    ) -> Result<Option<EndReason>, Refusal> {
        let Some(joined_at) = joined_at else { return Ok(None) };
        let GroupName { topic, group, .. } = &self.name;
        let possible =
            [Deleted::Topic(topic.clone()), Deleted::Group(topic.clone(), group.clone())];
        for deleted in possible {
            let Ok(key) = deleted.key() else { continue };
            let record = self.ctx.engine.get(&key).await?;
            if record.is_some_and(|record| record.version > joined_at) {
                return Ok(Some(deleted.reason()));
            }
        }
        Ok(None)
    }

    /// Returns a number far below the largest that programs can read as a JSON number.
    fn random_epoch(&self) -> u64 {
        let id = self.ctx.ids.next_id();
        let random = id.as_uuid().map_or(0, |uuid| uuid.as_u64_pair().1);
        random & ((1 << 50) - 1)
    }

    /// Gives the lease back if it names this gateway.
    pub(super) async fn release(&self) -> Result<(), Refusal> {
        let Some(leases) = &self.ctx.group_leases else { return Ok(()) };
        let Some((lease, version)) = self.lease().await? else { return Ok(()) };
        if lease.holder.as_ref() != Some(leases.heartbeat.gateway()) {
            return Ok(());
        }
        let put = self.put_lease(&GroupLease::of_nobody(lease.epoch), Some(version));
        // Fsynced, or an election could roll it back and leave a living gateway the owner.
        match self.commit(Submission::of_state(vec![put], Durability::Fsync)).await {
            // On a conflict another gateway has the lease already.
            Ok(_) | Err(CommitError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks to be told when the owner of the group is gone.
    pub(super) fn watch_lease(&self) {
        if let Some(leases) = &self.ctx.group_leases {
            leases.watch_lease(&self.name.topic, &self.name.group, &self.keys.lease);
        }
    }

    /// Asks to be told when another gateway stores other properties of the group.
    pub(super) fn watch_properties(&self) {
        if let Some(leases) = &self.ctx.group_leases {
            leases.watch_properties(&self.name.topic, &self.name.group, &self.keys.properties);
        }
    }

    pub(super) fn unwatch(&self) {
        if let Some(leases) = &self.ctx.group_leases {
            leases.unwatch(&self.name.topic, &self.name.group);
        }
    }

    /// Reads events from `from` on. If the topic does not have the first one any more, the dead letter at `letter` may.
    pub(super) async fn read(
        &self,
        from: Seq,
        budget: ReadBudget,
        letter: Option<Seq>,
    ) -> ReadOutcome {
        let outcome = self.read_topic(from, budget).await;
        match (&outcome, letter) {
            (ReadOutcome::Trimmed(_) | ReadOutcome::Damaged(_), Some(letter)) => {
                match self.copy_in(letter, from).await {
                    Ok(Some(copy)) => ReadOutcome::Events(vec![copy]),
                    Ok(None) => outcome,
                    Err(error) => ReadOutcome::Failed(error),
                }
            }
            _ => outcome,
        }
    }

    async fn read_topic(&self, from: Seq, budget: ReadBudget) -> ReadOutcome {
        match self.read_events(from, budget).await {
            Ok(events) if events.first().is_some_and(|first| first.seq == from) => {
                ReadOutcome::Events(events)
            }
            Ok(_) => match self.ctx.engine.bounds(&self.name.topic).await {
                Ok(bounds) if bounds.first > from => ReadOutcome::Trimmed(bounds.first),
                Ok(_) => ReadOutcome::NotYet,
                Err(error) => ReadOutcome::Failed(error),
            },
            Err(ReadError::Damaged(damaged)) => ReadOutcome::Damaged(damaged),
            Err(error) => ReadOutcome::Failed(error),
        }
    }

    async fn read_events(
        &self,
        from: Seq,
        budget: ReadBudget,
    ) -> Result<Vec<FeedEvent>, ReadError> {
        self.topic.feed.read(&self.ctx.engine, &self.name.topic, from, budget).await
    }

    /// Encodes the first of `letters`, as many as fit into one commit and at least one.
    pub(super) async fn encode_dead_letters(
        &self,
        letters: &mut [DeadLetterPending],
    ) -> Result<Vec<EncodedEvent>, Refusal> {
        let mut encoded = Vec::with_capacity(letters.len());
        let mut bytes = 0;
        for pending in letters {
            if bytes >= MAX_DEAD_LETTER_BYTES {
                break;
            }
            let original = match pending.seq {
                Some(seq) => self.original(seq, pending.copy).await?,
                None => None,
            };
            let letter = DeadLetter {
                topic: &self.name.topic,
                group: &self.name.group,
                original: original.as_ref(),
                error: &pending.error,
                attempts: pending.attempts,
                ts: self.ctx.clock.now(),
            };
            let id = pending.letter_id.get_or_insert_with(|| self.ctx.ids.next_id()).clone();
            let event = letter.encode(self.dead_letters.clone(), id);
            bytes += event.max_json_bytes();
            encoded.push(event);
        }
        Ok(encoded)
    }

    /// Reads the event `seq`, unless it is gone or damaged.
    async fn original(&self, seq: Seq, copy: Option<Seq>) -> Result<Option<FeedEvent>, ReadError> {
        match self.read(seq, ReadBudget::of_events(1), copy).await {
            ReadOutcome::Events(events) => Ok(events.into_iter().next()),
            ReadOutcome::NotYet | ReadOutcome::Trimmed(_) | ReadOutcome::Damaged(_) => Ok(None),
            ReadOutcome::Failed(error) => Err(error),
        }
    }

    /// Returns the first of `ids` that is marked.
    pub(super) async fn first_marked(&self, ids: &[EventId]) -> Result<Option<EventId>, Refusal> {
        let GroupName { topic, group, .. } = &self.name;
        let marked = are_marked(self.ctx.engine.as_ref(), topic, group, ids).await?;
        let first = ids.iter().zip(marked).find(|(_, is_marked)| *is_marked);
        Ok(first.map(|(id, _)| id.clone()))
    }

    /// Answers an acknowledgement that is stored although its commit was reported as failed.
    pub(super) async fn answer_stored_ack(&self, stored: StoredAck) {
        let StoredAck { ack, stale, published } = stored;
        let found = self.find_published(&published).await;
        ack.answer(found.map(|published| Acked { stale, published }));
    }

    /// Returns the positions of events that a stored acknowledgement published.
    async fn find_published(
        &self,
        published: &[(Topic, EventId)],
    ) -> Result<Vec<Position>, Refusal> {
        let mut positions = Vec::with_capacity(published.len());
        for (topic, id) in published {
            let Some(seq) = self.ctx.engine.seek_id(topic, id).await? else {
                // Another commit acknowledged the events, or retention has removed what this one published.
                let message = "the events were acknowledged by an earlier request";
                return Err(Refusal::new(ErrorCode::LeaseLost, message));
            };
            positions.push(Position { seq, duplicate: false });
        }
        Ok(positions)
    }

    /// Submits a commit and waits for its answer, without borrowing the store.
    pub(super) fn commit(
        &self,
        submission: Submission,
    ) -> Pin<Box<dyn Future<Output = CommitResult> + Send + 'static>> {
        Box::pin(submit(self.ctx.committer.clone(), submission))
    }

    /// Removes the group from the registry if `is_quiet` while nobody can find it there.
    pub(super) fn retire(&self, is_quiet: impl FnOnce() -> bool) -> bool {
        self.ctx.groups.retire(&self.name.topic, &self.name.group, || {
            let quiet = is_quiet();
            if quiet {
                // While nobody can start the group again: what the next task watches must not be undone.
                self.unwatch();
            }
            quiet
        })
    }

    /// Reads the stored cursor, and the version of the commit that stored it.
    pub(super) async fn cursor(&self) -> Result<Option<(Cursor, Version)>, Refusal> {
        let Some(entry) = self.ctx.engine.get(&self.name.cursor_key).await? else {
            return Ok(None);
        };
        let StateEntry { value, version, .. } = entry;
        let cursor = Cursor::decode(&value).map_err(|error| self.unusable("cursor", &error))?;
        Ok(Some((cursor, version)))
    }

    /// Reads the cursor and the redriven events.
    pub(super) async fn progress(&self) -> Result<Option<StoredProgress>, Refusal> {
        let Some((cursor, version)) = self.cursor().await? else { return Ok(None) };
        Ok(Some(StoredProgress { cursor, version, redrives: self.redrives().await? }))
    }

    /// Reads the first redriven events.
    pub(super) async fn redrives(&self) -> Result<Vec<(Seq, Redrive)>, Refusal> {
        let prefix = Redrive::prefix_of(&self.name.topic, &self.name.group);
        let entries = self.ctx.engine.scan(prefix.as_bytes(), None, MAX_REOPENED).await?;
        let read = |entry: &StateEntry| {
            Redrive::read(entry)
                .map_err(|error| self.unusable("redriven event", &error))
                .transpose()
        };
        entries.iter().filter_map(read).collect()
    }

    pub(super) async fn properties(&self) -> Result<GroupProperties, Refusal> {
        let Some(entry) = self.ctx.engine.get(&self.keys.properties).await? else {
            return Ok(GroupProperties::default());
        };
        GroupProperties::decode(&entry.value)
            .map_err(|error| self.unusable("properties record", &error))
    }

    pub(super) async fn store_properties(
        &self,
        properties: GroupProperties,
    ) -> Result<(), Refusal> {
        let put = put(&self.keys.properties, properties.encode().into(), Expect::Any);
        self.commit(Submission::of_state(vec![put], self.topic.durability())).await?;
        Ok(())
    }

    pub(super) async fn lease(&self) -> Result<Option<(GroupLease, Version)>, Refusal> {
        let Some(entry) = self.ctx.engine.get(&self.keys.lease).await? else { return Ok(None) };
        let StateEntry { value, version, .. } = entry;
        let lease = GroupLease::decode(&value).map_err(|error| self.unusable("lease", &error))?;
        Ok(Some((lease, version)))
    }

    /// The cursor of a group that is created now.
    async fn first_cursor(&self, start: &StartAt) -> Result<Cursor, Refusal> {
        let first = start.first(self.ctx.engine.as_ref(), &self.name.topic).await?;
        Ok(Cursor::starting_behind(first.previous(), self.ctx.clock.now()))
    }

    pub(super) async fn topic_end(&self) -> Result<Seq, ReadError> {
        Ok(self.ctx.engine.bounds(&self.name.topic).await?.last())
    }

    pub(super) fn moment(&self) -> Moment {
        Moment { instant: now(), timestamp: self.ctx.clock.now() }
    }

    fn unusable(&self, what: &str, error: &dyn std::fmt::Display) -> Refusal {
        let GroupName { topic, group, .. } = &self.name;
        let message = format!("the {what} of {group} on {topic} {error}");
        tracing::error!("{message}");
        Refusal::new(ErrorCode::Internal, message)
    }

    pub(super) fn put_cursor(&self, cursor: &Cursor, expect: Expect) -> StateOp {
        put(&self.name.cursor_key, cursor.encode().into(), expect)
    }

    pub(super) fn put_lease(&self, lease: &GroupLease, before: Option<Version>) -> StateOp {
        let expect = before.map_or(Expect::Absent, Expect::Version);
        put(&self.keys.lease, lease.encode().into(), expect)
    }
}

fn put(key: &StateKey, value: Bytes, expect: Expect) -> StateOp {
    StateOp::Put { key: key.clone(), value, expires_at: None, expect }
}

async fn submit(committer: Committer, submission: Submission) -> CommitResult {
    let answer = committer.submit(submission).await?;
    answer.await.unwrap_or_else(|_| Err(Unavailable::Closed.into()))
}
