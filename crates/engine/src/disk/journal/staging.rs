//! Commits on their way into one frame: checked, numbered and encoded, but not yet stored.
//!
//! Everything here can be discarded: readers see none of it until the frame is written.

mod duplicates;
pub(super) mod frame;
mod topic;

use std::collections::HashMap;

use prombus_proto::{EncodedEvent, Seq, Timestamp, Topic};

use self::duplicates::DuplicateOf;
use self::frame::RecordBuffers;
use self::topic::StagedTopic;
use super::retention;
use crate::disk::ids::TopicOrdinal;
use crate::disk::ids::ahead::IdLimit;
use crate::disk::read;
use crate::disk::record::SuffixChecksum;
use crate::disk::shared::{IdTables, Shared};
use crate::disk::state::change::StateChange;
use crate::disk::wal::frame::{Deletion, Trim};
use crate::{
    Batch, CommitError, Conflict, Expect, Position, ReadError, Retention, StateEntry, StateKey,
    StateOp, Version,
};

/// The staged changes of one frame.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// The time at which everything in the frame counts as stored.
    arrived: Timestamp,
    topics: Vec<StagedTopic>,
    /// Indexes into `topics`.
    by_name: HashMap<Topic, usize>,
    /// The index of the topic that was staged to last.
    latest: usize,
    trims: Vec<Trim>,
    deletions: Vec<Deletion>,
    /// The newest staged change of each key.
    state: HashMap<StateKey, StateChange>,
    state_in_order: Vec<StateChange>,
    /// Topics that are not in the view yet.
    new_topics: Vec<(Topic, TopicOrdinal)>,
    buffers: RecordBuffers,
}

impl Staging {
    pub(crate) fn new(buffers: RecordBuffers, arrived: Timestamp) -> Self {
        Self { arrived, buffers, ..Self::default() }
    }

    /// Returns `true` if there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.trims.is_empty()
            && self.deletions.is_empty()
            && self.state_in_order.is_empty()
            && self.topics.iter().all(|topic| topic.count == 0)
    }

    /// Checks `batch` against everything stored and staged before it, and stages it. The caller has
    /// checked its sizes. After an error nothing of it is staged.
    pub(crate) fn stage(
        &mut self,
        shared: &Shared,
        ids: &IdTables,
        (batch, suffix_checksums): (&Batch, &[SuffixChecksum]),
        version: Version,
    ) -> Result<Vec<Position>, CommitError> {
        for (topic, expected) in &batch.expected_last {
            let actual = self.next_of(shared, topic).previous();
            if actual != *expected {
                let (topic, expected) = (topic.clone(), *expected);
                return Err(Conflict::Last { topic, expected, actual }.into());
            }
        }
        let changes = self.check_state(shared, &batch.state, version)?;
        let deleted = &batch.deleted_topics;
        let duplicates = self.find_duplicates(shared, ids, &batch.events, deleted)?;
        // Nothing below fails.
        deleted.iter().for_each(|topic| self.stage_deletion(shared, topic));
        let mut duplicates = duplicates.into_iter().peekable();
        let mut positions: Vec<Position> = Vec::with_capacity(batch.events.len());
        for (index, (event, suffix_checksum)) in
            batch.events.iter().zip(suffix_checksums).enumerate()
        {
            let known = duplicates.next_if(|(duplicate, _)| *duplicate == index);
            positions.push(match known.map(|(_, of)| of) {
                Some(DuplicateOf::Stored(seq)) => Position { seq, duplicate: true },
                Some(DuplicateOf::EarlierInBatch(index)) => {
                    Position { duplicate: true, ..positions[index] }
                }
                None => {
                    let seq = self.append(shared, event, *suffix_checksum);
                    Position { seq, duplicate: false }
                }
            });
        }
        for change in changes {
            self.state.insert(change.key.clone(), change.clone());
            self.state_in_order.push(change);
        }
        Ok(positions)
    }

    /// Stages a trim, if it changes anything.
    pub(crate) fn stage_trim(&mut self, shared: &Shared, topic: &Topic, below: Seq) {
        if !self.is_unknown(shared, topic) {
            let index = self.topic_index(shared, topic);
            let rule = self.topics[index].rule;
            self.trim(index, below, rule);
        }
    }

    /// Stages the deletion of a topic, if there is one.
    fn stage_deletion(&mut self, shared: &Shared, topic: &Topic) {
        if self.is_unknown(shared, topic) {
            return;
        }
        let index = self.topic_index(shared, topic);
        let staged = &mut self.topics[index];
        staged.first = staged.next;
        staged.rule = 0;
        staged.is_deleted = true;
        let below = staged.next;
        self.trims.retain(|trim| trim.topic != *topic);
        self.deletions.retain(|earlier| earlier.topic != *topic);
        self.deletions.push(Deletion { topic: topic.clone(), below });
    }

    /// Returns `true` if the topic was deleted and its numbering is still known.
    fn is_deleted(&self, shared: &Shared, topic: &Topic) -> bool {
        self.by_name.contains_key(topic) || shared.view().topics.contains_key(topic)
    }

    /// Returns `true` if the topic never existed or was deleted.
    fn is_unknown(&self, shared: &Shared, topic: &Topic) -> bool {
        match self.by_name.get(topic) {
            Some(index) => self.topics[*index].is_deleted,
            None => shared.view().topics.get(topic).is_none_or(|view| view.is_deleted),
        }
    }

    /// Stages the trim that `rule` demands. Refuses a rule older than the last one applied.
    pub(crate) fn stage_retain(
        &mut self,
        shared: &Shared,
        topic: &Topic,
        rule: &Retention,
    ) -> Result<(), CommitError> {
        if self.is_unknown(shared, topic) && (rule.revision == 0 || self.is_deleted(shared, topic))
        {
            return Ok(());
        }
        let index = self.topic_index(shared, topic);
        let applied = self.topics[index].rule;
        if rule.revision < applied {
            let (topic, offered) = (topic.clone(), rule.revision);
            return Err(CommitError::StaleRule { topic, offered, applied });
        }
        retention::record_age_limit(shared, topic, rule);
        self.trim(index, retention::first_retained(shared, topic, rule), rule.revision);
        Ok(())
    }

    fn trim(&mut self, index: usize, below: Seq, rule: u64) {
        let staged = &mut self.topics[index];
        let below = below.min(staged.next).max(staged.first);
        if below > staged.first || rule > staged.rule {
            staged.first = below;
            staged.rule = rule;
            self.trims.push(Trim { topic: staged.name.clone(), below, rule });
        }
    }

    fn next_of(&self, shared: &Shared, topic: &Topic) -> Seq {
        match self.by_name.get(topic) {
            Some(index) if self.topics[*index].is_deleted => Seq::FIRST,
            Some(index) => self.topics[*index].next,
            None => shared.view().topics.get(topic).map_or(Seq::FIRST, |view| view.bounds().next),
        }
    }

    fn check_state(
        &self,
        shared: &Shared,
        ops: &[StateOp],
        version: Version,
    ) -> Result<Vec<StateChange>, CommitError> {
        let mut changes: Vec<StateChange> = Vec::with_capacity(ops.len());
        for op in ops {
            let key = op.key();
            if op.expect() != Expect::Any {
                let in_batch = changes.iter().rfind(|change| change.key == *key);
                let actual = self.current(shared, in_batch, key)?.map(|entry| entry.version);
                if !op.expect().holds(actual) {
                    return Err(Conflict::State { key: key.clone(), actual }.into());
                }
            }
            let put = match op {
                StateOp::Put { value, expires_at, .. } => Some((value.clone(), *expires_at)),
                StateOp::Delete { .. } => None,
            };
            changes.push(StateChange { key: key.clone(), version, put });
        }
        Ok(changes)
    }

    /// Returns the current entry of `key`, staged changes included.
    fn current(
        &self,
        shared: &Shared,
        in_batch: Option<&StateChange>,
        key: &StateKey,
    ) -> Result<Option<StateEntry>, ReadError> {
        match in_batch.or_else(|| self.state.get(key)) {
            Some(change) => {
                let now = shared.options.clock.now();
                Ok(change.entry().filter(|entry| !entry.has_expired(now)))
            }
            None => read::state::get(shared, key),
        }
    }

    fn append(
        &mut self,
        shared: &Shared,
        event: &EncodedEvent,
        suffix_checksum: SuffixChecksum,
    ) -> Seq {
        let index = self.topic_index(shared, event.topic());
        self.topics[index].append(event, suffix_checksum)
    }

    fn topic_index(&mut self, shared: &Shared, topic: &Topic) -> usize {
        // Most events go to the same topic as the one before.
        if self.topics.get(self.latest).is_some_and(|latest| latest.name == *topic) {
            return self.latest;
        }
        if let Some(index) = self.by_name.get(topic) {
            self.latest = *index;
            return *index;
        }
        let id_limit = IdLimit::of_frame(Some(self.arrived));
        let staged = {
            let view = shared.view();
            match view.topics.get(topic) {
                Some(view) => StagedTopic::new(topic, view, id_limit, self.buffers.take()),
                None => {
                    let staged_before = u32::try_from(self.new_topics.len()).expect("few topics");
                    let ordinal = TopicOrdinal(view.next_ordinal().0 + staged_before);
                    self.new_topics.push((topic.clone(), ordinal));
                    let view = view.new_topic(topic, ordinal);
                    StagedTopic::new(topic, &view, id_limit, self.buffers.take())
                }
            }
        };
        self.topics.push(staged);
        self.latest = self.topics.len() - 1;
        self.by_name.insert(topic.clone(), self.latest);
        self.latest
    }
}
