//! Keyed state that is in the write-ahead log and not yet in the state store.

use std::collections::BTreeMap;
use std::ops::Bound;

use prombus_proto::limits::MAX_STATE_KEY_BYTES;

use crate::disk::wal::frame::StateChange;
use crate::{StateEntry, StateKey};

/// The newest change of every key that a checkpoint has not moved yet.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    changes: BTreeMap<StateKey, Pending>,
    /// The log file of the newest change, and how many of the changes are in that file.
    newest_file: u64,
    in_newest_file: usize,
}

#[derive(Debug)]
struct Pending {
    wal_number: u64,
    change: StateChange,
}

impl Overlay {
    pub(crate) fn apply(&mut self, wal_number: u64, change: StateChange) {
        if wal_number != self.newest_file {
            (self.newest_file, self.in_newest_file) = (wal_number, 0);
        }
        let before = self.changes.insert(change.key.clone(), Pending { wal_number, change });
        if before.is_none_or(|before| before.wal_number != wal_number) {
            self.in_newest_file += 1;
        }
    }

    /// How many keys log file `wal_number`, the newest, has changed.
    pub(crate) const fn in_newest_file(&self, wal_number: u64) -> usize {
        if self.newest_file == wal_number { self.in_newest_file } else { 0 }
    }

    /// The newest change of `key`, if it is here.
    pub(crate) fn get(&self, key: &StateKey) -> Option<&StateChange> {
        self.changes.get(key).map(|pending| &pending.change)
    }

    /// The changes of keys that start with `prefix`, behind `after`.
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
        // No key starts with a prefix longer than any key.
        let possible = prefix.len() <= MAX_STATE_KEY_BYTES;
        self.changes
            .range((from, Bound::Unbounded))
            .take_while(move |(key, _)| possible && key.as_bytes().starts_with(prefix))
            .map(|(_, pending)| &pending.change)
    }

    /// The changes that a checkpoint of log files up to `wal_number` has to move. What was changed
    /// again later is not among them: the later file still holds it.
    pub(crate) fn up_to(&self, wal_number: u64) -> Vec<StateChange> {
        self.changes
            .values()
            .filter(|pending| pending.wal_number <= wal_number)
            .map(|pending| pending.change.clone())
            .collect()
    }

    /// Forgets what [`Overlay::up_to`] gave, now that it is in the state store.
    pub(crate) fn forget_up_to(&mut self, wal_number: u64) {
        self.changes.retain(|_, pending| pending.wal_number > wal_number);
    }
}

impl StateChange {
    /// What the change left, if it left anything.
    pub(crate) fn entry(&self) -> Option<StateEntry> {
        self.put.as_ref().map(|(value, expires_at)| StateEntry {
            key: self.key.clone(),
            value: value.clone(),
            version: self.version,
            expires_at: *expires_at,
        })
    }
}
