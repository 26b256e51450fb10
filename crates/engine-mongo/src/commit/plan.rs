//! What a batch writes, given a snapshot of the database: no I/O.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use mongodb::bson::RawDocumentBuf;
use prombus_engine::{Batch, Conflict, Expect, Position, StateKey, StateOp, Version};
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use super::snapshot::Snapshot;
use crate::layout::event_document::{Totals, encode};
use crate::layout::numbers::{from_bson, to_bson};
use crate::layout::topic_document::TopicDocument;

pub(super) struct CommitPlan {
    pub(super) positions: Vec<Position>,
    pub(super) events: Vec<RawDocumentBuf>,
    pub(super) parts: Vec<RawDocumentBuf>,
    /// Topics that events are appended to, as they are afterwards.
    pub(super) appended: Vec<(Topic, TopicDocument)>,
    /// Topics that are deleted and get no event, as they are afterwards.
    pub(super) deleted: Vec<TopicDocument>,
    deleted_topics: Vec<Topic>,
    /// Topics that only have to stay unchanged.
    pub(super) guarded: Vec<Topic>,
    pub(super) state: BTreeMap<StateKey, StateChange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StateChange {
    Put {
        value: Bytes,
        expires_at: Option<Timestamp>,
    },
    Delete,
    /// The key was expected to be absent, and is. No concurrent commit may put it.
    KeepAbsent,
}

/// The version of a value put earlier in the same batch. No commit is ever given it.
const OF_THIS_BATCH: Version = Version(u64::MAX);

impl CommitPlan {
    /// Plans `batch`.
    ///
    /// # Errors
    ///
    /// The first expectation that does not hold.
    pub(super) fn new(
        batch: &Batch,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<Self, Conflict> {
        check_last_positions(batch, snapshot)?;
        let state = plan_state(&batch.state, snapshot, now)?;
        let mut plan = Self {
            positions: Vec::with_capacity(batch.events.len()),
            events: Vec::new(),
            parts: Vec::new(),
            appended: Vec::new(),
            deleted: Vec::new(),
            deleted_topics: batch.deleted_topics.clone(),
            guarded: Vec::new(),
            state,
        };
        plan.add_events(batch, snapshot, to_bson(now.0));
        let appended: HashSet<&str> =
            plan.appended.iter().map(|(topic, _)| topic.as_str()).collect();
        let deleted =
            batch.deleted_topics.iter().filter(|topic| !appended.contains(topic.as_str()));
        let deleted = deleted.filter_map(|topic| snapshot.after_deletion(topic.as_str()));
        plan.deleted = deleted.collect();
        plan.deleted.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        plan.deleted.dedup_by(|one, other| one.name == other.name);
        let is_written = |topic: &Topic| {
            appended.contains(topic.as_str())
                || plan.deleted.iter().any(|deleted| deleted.name == topic.as_str())
        };
        let expected = batch.expected_last.iter().map(|(topic, _)| topic);
        plan.guarded = expected.filter(|topic| !is_written(topic)).cloned().collect();
        plan.guarded.sort_unstable();
        plan.guarded.dedup();
        Ok(plan)
    }

    /// Returns the topics whose documents say from now on that they were deleted.
    pub(super) fn names_of_deleted(&self) -> Vec<String> {
        let appended = self.appended.iter().map(|(_, document)| document);
        let of_this_batch = appended.filter(|it| {
            it.deleted_at.is_some()
                && self.deleted_topics.iter().any(|topic| topic.as_str() == it.name)
        });
        of_this_batch.chain(&self.deleted).map(|document| document.name.clone()).collect()
    }

    /// Returns `true` if the topic is deleted before anything is appended to it.
    pub(super) fn deletes(&self, topic: &Topic) -> bool {
        self.deleted_topics.contains(topic)
    }

    fn add_events(&mut self, batch: &Batch, snapshot: &Snapshot, now: i64) {
        let mut in_batch: HashMap<(&Topic, &EventId), Seq> = HashMap::new();
        let mut appended: BTreeMap<&Topic, TopicDocument> = BTreeMap::new();
        for event in &batch.events {
            let (topic, id) = (event.topic(), event.id());
            let existing = in_batch.get(&(topic, id)).copied().or_else(|| {
                // Building the key allocates, so only if ids were looked up at all.
                match snapshot.ids.is_empty() {
                    true => None,
                    false => {
                        snapshot.ids.get(&(topic.as_str().to_owned(), id.to_string())).copied()
                    }
                }
            });
            if let Some(seq) = existing {
                self.positions.push(Position { seq, duplicate: true });
                continue;
            }
            let document = appended.entry(topic).or_insert_with(|| {
                let known = match batch.deleted_topics.contains(topic) {
                    true => snapshot.after_deletion(topic.as_str()),
                    false => snapshot.topics.get(topic.as_str()).cloned(),
                };
                known.unwrap_or_else(|| TopicDocument::new(topic.as_str()))
            });
            let seq = Seq(from_bson(document.next));
            let totals = Totals { bytes: document.bytes, latest_ts: document.latest_ts };
            let lifetime = document.store_event(now);
            let (encoded, parts, totals) = encode(event, seq, totals, lifetime);
            document.next = to_bson(seq.next().0);
            document.bytes = totals.bytes;
            document.latest_ts = totals.latest_ts;
            self.events.push(encoded);
            self.parts.extend(parts);
            self.positions.push(Position { seq, duplicate: false });
            in_batch.insert((topic, id), seq);
        }
        let appended = appended.into_iter();
        self.appended = appended.map(|(topic, document)| (topic.clone(), document)).collect();
    }
}

fn check_last_positions(batch: &Batch, snapshot: &Snapshot) -> Result<(), Conflict> {
    for (topic, expected) in &batch.expected_last {
        let actual = snapshot.topics.get(topic.as_str()).cloned();
        let actual = actual.map_or(Seq::ZERO, |document| document.visible().last());
        if actual != *expected {
            return Err(Conflict::Last { topic: topic.clone(), expected: *expected, actual });
        }
    }
    Ok(())
}

fn plan_state(
    ops: &[StateOp],
    snapshot: &Snapshot,
    now: Timestamp,
) -> Result<BTreeMap<StateKey, StateChange>, Conflict> {
    let mut changes: BTreeMap<StateKey, StateChange> = BTreeMap::new();
    for op in ops {
        let key = op.key();
        let stored = snapshot.state.get(key).filter(|entry| !entry.has_expired(now));
        let actual = match changes.get(key) {
            Some(StateChange::Put { expires_at, .. }) => {
                let has_expired = expires_at.is_some_and(|expires_at| expires_at <= now);
                (!has_expired).then_some(OF_THIS_BATCH)
            }
            Some(StateChange::Delete | StateChange::KeepAbsent) => None,
            None => stored.map(|entry| entry.version),
        };
        // Nobody can have expected the version of this very batch.
        let is_of_this_batch =
            actual == Some(OF_THIS_BATCH) && matches!(op.expect(), Expect::Version(_));
        if is_of_this_batch || !op.expect().holds(actual) {
            return Err(Conflict::State { key: key.clone(), actual });
        }
        let change = match op {
            StateOp::Put { value, expires_at, .. } => {
                StateChange::Put { value: value.clone(), expires_at: *expires_at }
            }
            StateOp::Delete { expect: Expect::Absent, .. } if !snapshot.state.contains_key(key) => {
                StateChange::KeepAbsent
            }
            StateOp::Delete { .. } => StateChange::Delete,
        };
        changes.insert(key.clone(), change);
    }
    Ok(changes)
}
