//! The state changes that are in the write-ahead log and not yet in a sorted run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem;
use std::ops::Bound;

use prombus_proto::limits::MAX_STATE_KEY_BYTES;

use super::change::StateChange;
use crate::StateKey;

/// The changes that were not checkpointed yet: of every key the newest in each WAL file.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    changes: BTreeMap<StateKey, MemtableEntry>,
    /// The number of the WAL file that has the newest change.
    newest_wal: u64,
    keys_in_newest_wal: usize,
}

#[derive(Debug)]
struct MemtableEntry {
    newest: LoggedChange,
    /// The changes in earlier WAL files, oldest first. Hardly any key has one.
    earlier: Vec<LoggedChange>,
}

#[derive(Debug)]
struct LoggedChange {
    wal_number: u64,
    change: StateChange,
}

impl Memtable {
    pub(crate) fn apply(&mut self, wal_number: u64, change: StateChange) {
        if wal_number != self.newest_wal {
            (self.newest_wal, self.keys_in_newest_wal) = (wal_number, 0);
        }
        let key = change.key.clone();
        let change = LoggedChange { wal_number, change };
        match self.changes.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(MemtableEntry { newest: change, earlier: Vec::new() });
                self.keys_in_newest_wal += 1;
            }
            Entry::Occupied(mut known) => {
                let before = mem::replace(&mut known.get_mut().newest, change);
                if before.wal_number != wal_number {
                    known.get_mut().earlier.push(before);
                    self.keys_in_newest_wal += 1;
                }
            }
        }
    }

    /// Returns how many keys changed in the WAL file `wal_number`, which is the newest.
    pub(crate) const fn keys_in_newest_wal(&self, wal_number: u64) -> usize {
        if self.newest_wal == wal_number { self.keys_in_newest_wal } else { 0 }
    }

    /// Returns the newest change of `key`, unless it was checkpointed.
    pub(crate) fn get(&self, key: &StateKey) -> Option<&StateChange> {
        self.changes.get(key).map(|entry| &entry.newest.change)
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
            .map(|(_, entry)| &entry.newest.change)
    }

    /// Returns the changes that a checkpoint of the WAL files up to `wal_number` has to write: of
    /// every key the newest in these files. A key may have changed again in a later file, but that
    /// one need not be durable yet.
    pub(crate) fn changes_up_to(&self, wal_number: u64) -> Vec<StateChange> {
        let newest_in_files = |entry: &MemtableEntry| {
            let mut changes = entry.earlier.iter().chain([&entry.newest]);
            changes.rfind(|change| change.wal_number <= wal_number).map(|c| c.change.clone())
        };
        self.changes.values().filter_map(newest_in_files).collect()
    }

    /// Removes the changes in the WAL files up to `wal_number`, after they were checkpointed.
    pub(crate) fn remove_up_to(&mut self, wal_number: u64) {
        self.changes.retain(|_, entry| {
            entry.earlier.retain(|change| change.wal_number > wal_number);
            entry.newest.wal_number > wal_number
        });
    }
}
