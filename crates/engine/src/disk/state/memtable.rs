//! The state changes that are in the write-ahead log and not yet in a sorted run.

use std::collections::BTreeMap;
use std::ops::Bound;

use prombus_proto::limits::MAX_STATE_KEY_BYTES;

use super::change::StateChange;
use crate::StateKey;

/// The newest change of every key that was not checkpointed yet.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    changes: BTreeMap<StateKey, MemtableEntry>,
    /// The number of the WAL file that has the newest change.
    newest_wal: u64,
    keys_in_newest_wal: usize,
}

#[derive(Debug)]
struct MemtableEntry {
    wal_number: u64,
    change: StateChange,
}

impl Memtable {
    pub(crate) fn apply(&mut self, wal_number: u64, change: StateChange) {
        if wal_number != self.newest_wal {
            (self.newest_wal, self.keys_in_newest_wal) = (wal_number, 0);
        }
        let before = self.changes.insert(change.key.clone(), MemtableEntry { wal_number, change });
        if before.is_none_or(|before| before.wal_number != wal_number) {
            self.keys_in_newest_wal += 1;
        }
    }

    /// Returns how many keys changed in the WAL file `wal_number`, which is the newest.
    pub(crate) const fn keys_in_newest_wal(&self, wal_number: u64) -> usize {
        if self.newest_wal == wal_number { self.keys_in_newest_wal } else { 0 }
    }

    /// Returns the newest change of `key`, unless it was checkpointed.
    pub(crate) fn get(&self, key: &StateKey) -> Option<&StateChange> {
        self.changes.get(key).map(|entry| &entry.change)
    }

    /// Iterates over the changes of keys with `prefix` after `after`.
    pub(crate) fn range<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&StateKey>,
    ) -> impl Iterator<Item = &'a StateChange> {
        let from = match (StateKey::new(prefix.to_vec()), after) {
            (_, Some(after)) if after.as_bytes() >= prefix => Bound::Excluded(after.clone()),
            (Ok(prefix), _) => Bound::Included(prefix),
            (Err(_), _) => Bound::Unbounded,
        };
        // A prefix longer than the longest key matches nothing.
        let possible = prefix.len() <= MAX_STATE_KEY_BYTES;
        self.changes
            .range((from, Bound::Unbounded))
            .take_while(move |(key, _)| possible && key.as_bytes().starts_with(prefix))
            .map(|(_, entry)| &entry.change)
    }

    /// Returns the changes that a checkpoint of the WAL files up to `wal_number` has to write. A key
    /// that changed again later is not among them: the later file still has it.
    pub(crate) fn changes_up_to(&self, wal_number: u64) -> Vec<StateChange> {
        self.changes
            .values()
            .filter(|entry| entry.wal_number <= wal_number)
            .map(|entry| entry.change.clone())
            .collect()
    }

    /// Removes the changes that [`Memtable::changes_up_to`] returned, after they were checkpointed.
    pub(crate) fn remove_up_to(&mut self, wal_number: u64) {
        self.changes.retain(|_, entry| entry.wal_number > wal_number);
    }
}
