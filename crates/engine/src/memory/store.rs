//! The contents of the engine, behind its lock.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use prombus_proto::{Seq, Timestamp, Topic};
use tokio::sync::watch;

use super::topic_log::TopicLog;
use crate::{
    Batch, Bounds, CommitError, Committed, Conflict, Durability, Position, Retention, StateEntry,
    StateKey, StateOp, Version, WriteStats,
};

#[derive(Default)]
pub(super) struct Store {
    logs: BTreeMap<Topic, TopicLog>,
    /// The newest retention revision applied per topic, also for topics without events.
    applied_rules: HashMap<Topic, u64>,
    state: BTreeMap<StateKey, StateEntry>,
    last_version: u64,
    /// Created by the first watcher of a topic and shared by all of them.
    growth: HashMap<Topic, watch::Sender<Seq>>,
}

impl Store {
    pub(super) fn log(&self, topic: &Topic) -> Option<&TopicLog> {
        self.logs.get(topic)
    }

    pub(super) fn bounds(&self, topic: &Topic) -> Bounds {
        self.log(topic).map_or(Bounds::EMPTY, TopicLog::bounds)
    }

    pub(super) fn topics(&self) -> Vec<Topic> {
        self.logs.keys().cloned().collect()
    }

    pub(super) fn commit(
        &mut self,
        batch: Batch,
        now: Timestamp,
    ) -> Result<Committed, CommitError> {
        self.check_last_positions(&batch)?;
        let version = Version(self.last_version + 1);
        let changes = self.apply_in_order(batch.state, version, now)?;

        // Nothing can fail from here on.
        self.last_version = version.0;
        for (key, entry) in changes {
            match entry {
                Some(entry) => self.state.insert(key, entry),
                None => self.state.remove(&key),
            };
        }
        for topic in &batch.deleted_topics {
            self.delete_topic(topic);
        }
        let mut positions = Vec::with_capacity(batch.events.len());
        let mut events = batch.events.into_iter().peekable();
        while let Some(first) = events.next() {
            let topic = first.topic().clone();
            let log = self.logs.entry(topic.clone()).or_default();
            let before = positions.len();
            positions.push(log.append(&first, now));
            while let Some(next) = events.next_if(|next| *next.topic() == topic) {
                positions.push(log.append(&next, now));
            }
            if let Some(last) = positions[before..].iter().max_by_key(|position| position.seq) {
                self.notify_watchers(&topic, *last);
            }
        }
        let write = Some(WriteStats { events: positions.len(), sync_time: None });
        Ok(Committed { positions, version, durability: Durability::Memory, write })
    }

    fn delete_topic(&mut self, topic: &Topic) {
        self.logs.remove(topic);
        self.applied_rules.remove(topic);
        // Its receivers see a closed channel.
        self.growth.remove(topic);
    }

    fn check_last_positions(&self, batch: &Batch) -> Result<(), Conflict> {
        for (topic, expected) in &batch.expected_last {
            let actual = self.bounds(topic).last();
            if actual != *expected {
                return Err(Conflict::Last { topic: topic.clone(), expected: *expected, actual });
            }
        }
        Ok(())
    }

    /// Returns the entry that the operations leave for each key, `None` if deleted, or the first
    /// conflict.
    fn apply_in_order(
        &self,
        ops: Vec<StateOp>,
        version: Version,
        now: Timestamp,
    ) -> Result<BTreeMap<StateKey, Option<StateEntry>>, Conflict> {
        let mut changes: BTreeMap<StateKey, Option<StateEntry>> = BTreeMap::new();
        for op in ops {
            let before = match changes.get(op.key()) {
                Some(changed) => changed.as_ref(),
                None => self.state.get(op.key()),
            };
            let actual = before.filter(|entry| !entry.has_expired(now)).map(|entry| entry.version);
            if !op.expect().holds(actual) {
                return Err(Conflict::State { key: op.key().clone(), actual });
            }
            match op {
                StateOp::Put { key, value, expires_at, .. } => {
                    let entry = StateEntry { key: key.clone(), value, version, expires_at };
                    changes.insert(key, Some(entry));
                }
                StateOp::Delete { key, .. } => {
                    changes.insert(key, None);
                }
            }
        }
        Ok(changes)
    }

    fn notify_watchers(&self, topic: &Topic, position: Position) {
        if let Some(growth) = self.growth.get(topic) {
            growth.send_if_modified(|last| {
                let grown = position.seq > *last;
                *last = position.seq.max(*last);
                grown
            });
        }
    }

    pub(super) fn watch(&mut self, topic: &Topic) -> watch::Receiver<Seq> {
        let last = self.bounds(topic).last();
        self.growth.entry(topic.clone()).or_insert_with(|| watch::channel(last).0).subscribe()
    }

    pub(super) fn trim(&mut self, topic: &Topic, below: Seq) -> Bounds {
        match self.logs.get_mut(topic) {
            Some(log) => {
                log.trim(below);
                log.bounds()
            }
            None => Bounds::EMPTY,
        }
    }

    pub(super) fn retain(
        &mut self,
        topic: &Topic,
        rule: &Retention,
        now: Timestamp,
    ) -> Result<Bounds, CommitError> {
        let applied = self.applied_rules.entry(topic.clone()).or_default();
        if rule.revision < *applied {
            return Err(CommitError::StaleRule {
                topic: topic.clone(),
                offered: rule.revision,
                applied: *applied,
            });
        }
        *applied = rule.revision;
        match self.logs.get_mut(topic) {
            Some(log) => {
                log.retain(rule, now);
                Ok(log.bounds())
            }
            None => Ok(Bounds::EMPTY),
        }
    }

    pub(super) fn get(&self, key: &StateKey, now: Timestamp) -> Option<&StateEntry> {
        self.state.get(key).filter(|entry| !entry.has_expired(now))
    }

    pub(super) fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
        now: Timestamp,
    ) -> Vec<StateEntry> {
        let start = match after {
            Some(key) => Bound::Excluded(key),
            None => Bound::Unbounded,
        };
        self.state
            .range((start, Bound::Unbounded))
            .map(|(_, entry)| entry)
            .skip_while(|entry| entry.key.as_bytes() < prefix)
            .take_while(|entry| entry.key.as_bytes().starts_with(prefix))
            .filter(|entry| !entry.has_expired(now))
            .take(limit)
            .cloned()
            .collect()
    }
}
