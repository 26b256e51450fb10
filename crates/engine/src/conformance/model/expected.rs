//! The model: the contract in plain maps, without any optimisation.

use std::collections::BTreeMap;

use prombus_proto::{EventId, Timestamp};

use crate::{Batch, Expect, Position, StateEntry, StateOp, StoredEvent, Version};

#[derive(Clone, Default)]
pub(super) struct Expected {
    pub(super) topics: BTreeMap<String, ExpectedTopic>,
    /// Includes expired values.
    state: BTreeMap<Vec<u8>, StateEntry>,
    pub(super) last_version: Option<Version>,
}

#[derive(Clone, Default)]
pub(super) struct ExpectedTopic {
    pub(super) retained: Vec<StoredEvent>,
    /// The number of events ever appended.
    pub(super) appended: u64,
    pub(super) applied_rule: Option<u64>,
    /// Set after a deletion until the next event, which the engine may number from there on.
    pub(super) deleted_at: Option<u64>,
}

/// The result of a successful commit: the position of each event, and whether it is a duplicate.
pub(super) type Positions = Vec<(u64, bool)>;

impl ExpectedTopic {
    pub(super) fn first(&self) -> u64 {
        self.appended + 1 - self.retained.len() as u64
    }

    pub(super) fn seq_of(&self, id: &EventId) -> Option<u64> {
        let found = self.retained.iter().find(|event| event.id == *id)?;
        Some(found.seq.0)
    }

    /// Forgets everything but where the numbering may go on.
    fn delete(&mut self) {
        let deleted_at = self.deleted_at.or((self.appended > 0).then_some(self.appended));
        *self = Self { deleted_at, ..Self::default() };
    }

    pub(super) fn drop_below(&mut self, below: u64) {
        self.retained.retain(|event| event.seq.0 >= below);
    }
}

impl Expected {
    pub(super) fn topic(&self, name: &str) -> ExpectedTopic {
        self.topics.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn topic_mut(&mut self, name: &str) -> &mut ExpectedTopic {
        self.topics.entry(name.into()).or_default()
    }

    pub(super) fn topic_names(&self) -> Vec<String> {
        let with_events = self.topics.iter().filter(|(_, topic)| topic.appended > 0);
        with_events.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn get(&self, key: &[u8], now: Timestamp) -> Option<&StateEntry> {
        let entry = self.state.get(key)?;
        match entry.expires_at {
            Some(end) if end <= now => None,
            _ => Some(entry),
        }
    }

    pub(super) fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        now: Timestamp,
    ) -> Vec<StateEntry> {
        let mut found = Vec::new();
        for key in self.state.keys() {
            let is_after = after.is_none_or(|after| key.as_slice() > after);
            if key.starts_with(prefix) && is_after {
                found.extend(self.get(key, now).cloned());
            }
        }
        found
    }

    /// Returns the model after `batch`, or `None` if an expectation fails. `version` comes from the
    /// engine's result: the model cannot predict it, and no expectation in the batch can name it. So do the
    /// first `positions` of topics that were deleted.
    pub(super) fn after(
        &self,
        batch: &Batch,
        version: Version,
        answered: &[Position],
        now: Timestamp,
    ) -> Option<(Expected, Positions)> {
        for (topic, last) in &batch.expected_last {
            if self.topic(topic.as_str()).appended != last.0 {
                return None;
            }
        }
        let mut after = self.clone();
        after.last_version = Some(version);
        for op in &batch.state {
            let key = op.key().as_bytes();
            let actual = after.get(key, now).map(|entry| entry.version);
            let holds = match op.expect() {
                Expect::Any => true,
                Expect::Absent => actual.is_none(),
                Expect::Version(expected) => actual == Some(expected),
            };
            if !holds {
                return None;
            }
            after.apply(op, version);
        }
        for topic in &batch.deleted_topics {
            after.topic_mut(topic.as_str()).delete();
        }
        let mut positions = Positions::new();
        for (index, event) in batch.events.iter().enumerate() {
            let topic = after.topic_mut(event.topic().as_str());
            if let Some(seq) = topic.seq_of(event.id()) {
                positions.push((seq, true));
                continue;
            }
            if let Some(before) = topic.deleted_at.take()
                && answered.get(index).is_some_and(|answered| answered.seq.0 == before + 1)
            {
                topic.appended = before;
            }
            topic.appended += 1;
            let seq = prombus_proto::Seq(topic.appended);
            let mut json = Vec::new();
            event.write_json(seq, &mut json);
            topic.retained.push(StoredEvent {
                seq,
                ts: event.ts(),
                id: event.id().clone(),
                key: event.key().cloned(),
                json: json.into(),
            });
            positions.push((topic.appended, false));
        }
        Some((after, positions))
    }

    fn apply(&mut self, op: &StateOp, version: Version) {
        match op {
            StateOp::Put { key, value, expires_at, .. } => {
                let entry = StateEntry {
                    key: key.clone(),
                    value: value.clone(),
                    version,
                    expires_at: *expires_at,
                };
                self.state.insert(key.as_bytes().to_vec(), entry);
            }
            StateOp::Delete { key, .. } => {
                self.state.remove(key.as_bytes());
            }
        }
    }
}
