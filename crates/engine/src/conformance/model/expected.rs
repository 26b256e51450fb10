//! The model: what the contract says is there, in plain maps and without any cleverness.

use std::collections::BTreeMap;

use prombus_proto::{EventId, Timestamp};

use crate::{Batch, Expect, StateEntry, StateOp, StoredEvent, Version};

#[derive(Clone, Default)]
pub(super) struct Expected {
    pub(super) topics: BTreeMap<String, ExpectedTopic>,
    /// Also what has expired.
    state: BTreeMap<Vec<u8>, StateEntry>,
    pub(super) last_version: Option<Version>,
}

#[derive(Clone, Default)]
pub(super) struct ExpectedTopic {
    pub(super) kept: Vec<StoredEvent>,
    pub(super) ever: u64,
    pub(super) applied_rule: Option<u64>,
}

/// What a commit that goes through leads to: where each event is and whether it was there before.
pub(super) type Places = Vec<(u64, bool)>;

impl ExpectedTopic {
    pub(super) fn first(&self) -> u64 {
        self.ever + 1 - self.kept.len() as u64
    }

    pub(super) fn place_of(&self, id: &EventId) -> Option<u64> {
        let found = self.kept.iter().find(|event| event.id == *id)?;
        Some(found.seq.0)
    }

    pub(super) fn forget_below(&mut self, below: u64) {
        self.kept.retain(|event| event.seq.0 >= below);
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
        let with_events = self.topics.iter().filter(|(_, topic)| topic.ever > 0);
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
            let behind = after.is_none_or(|after| key.as_slice() > after);
            if key.starts_with(prefix) && behind {
                found.extend(self.get(key, now).cloned());
            }
        }
        found
    }

    /// The model after `batch`, if nothing keeps it out. Which version the engine gives is only
    /// known from its answer; a version inside the batch is one that nobody can have expected.
    pub(super) fn after(
        &self,
        batch: &Batch,
        version: Version,
        now: Timestamp,
    ) -> Option<(Expected, Places)> {
        for (topic, last) in &batch.expected_last {
            if self.topic(topic.as_str()).ever != last.0 {
                return None;
            }
        }
        let mut after = self.clone();
        after.last_version = Some(version);
        for op in &batch.state {
            let key = op.key().as_bytes();
            let there = after.get(key, now).map(|entry| entry.version);
            let holds = match op.expect() {
                Expect::Any => true,
                Expect::Absent => there.is_none(),
                Expect::Version(wanted) => there == Some(wanted),
            };
            if !holds {
                return None;
            }
            after.apply(op, version);
        }
        let mut places = Places::new();
        for event in &batch.events {
            let topic = after.topic_mut(event.topic().as_str());
            if let Some(place) = topic.place_of(event.id()) {
                places.push((place, true));
                continue;
            }
            topic.ever += 1;
            let seq = prombus_proto::Seq(topic.ever);
            let mut json = Vec::new();
            event.write_json(seq, &mut json);
            topic.kept.push(StoredEvent {
                seq,
                ts: event.ts(),
                id: event.id().clone(),
                key: event.key().cloned(),
                json: json.into(),
            });
            places.push((topic.ever, false));
        }
        Some((after, places))
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
