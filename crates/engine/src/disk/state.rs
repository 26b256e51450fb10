//! The keyed state on disk: sorted files, each written once by a checkpoint.
//!
//! A checkpoint writes the changes of a log file as one sorted file ([`run`]), and several files
//! become one ([`merge`]), newer changes before older ones. What was deleted or has expired goes
//! when nothing older is left that it could hide; a file of which half has expired ([`expiries`]) is
//! written again for that alone.

mod expiries;
pub(crate) mod filter;
pub(crate) mod memtable;
pub(crate) mod merge;
pub(crate) mod page;
pub(crate) mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::run::StateRun;
use crate::StateKey;
use crate::disk::wal::frame::StateChange;

/// All files of the keyed state, oldest first. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyedRuns {
    pub(crate) runs: Vec<Arc<StateRun>>,
}

impl KeyedRuns {
    /// The newest change of `key`, or what is damaged.
    pub(crate) fn get(&self, key: &StateKey) -> Result<Option<StateChange>, String> {
        for run in self.runs.iter().rev() {
            if let Some(change) = run.get(key)? {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// Adds the changes of keys that start with `prefix`, behind `after`, at most `per_run` of
    /// each file.
    pub(crate) fn range_into(
        &self,
        range: &mut KeyedRange,
        prefix: &[u8],
        after: Option<&StateKey>,
        per_run: usize,
    ) -> Result<(), String> {
        for run in self.runs.iter().rev() {
            let changes = run.iter_from(prefix, after)?.take_while(|change| {
                change.as_ref().map_or(true, |change| change.key.as_bytes().starts_with(prefix))
            });
            range.add(per_run, changes)?;
        }
        Ok(())
    }
}

/// Changes from several sources, of each key the newest.
#[derive(Debug, Default)]
pub(crate) struct KeyedRange {
    changes: BTreeMap<StateKey, StateChange>,
    /// Behind this key, something may be missing.
    complete_to: Option<StateKey>,
}

impl KeyedRange {
    /// Adds at most `limit` changes of a source that is older than those added before.
    pub(crate) fn add(
        &mut self,
        limit: usize,
        source: impl Iterator<Item = Result<StateChange, String>>,
    ) -> Result<(), String> {
        for (taken, change) in source.enumerate() {
            let change = change?;
            if taken + 1 >= limit {
                let bound = self.complete_to.take();
                self.complete_to =
                    Some(bound.map_or(change.key.clone(), |bound| bound.min(change.key.clone())));
                self.changes.entry(change.key.clone()).or_insert(change);
                break;
            }
            self.changes.entry(change.key.clone()).or_insert(change);
        }
        Ok(())
    }

    /// What is complete, in order, and the key to go on behind if there may be more.
    pub(crate) fn finish(self) -> (Vec<StateChange>, Option<StateKey>) {
        let complete_to = self.complete_to;
        let changes = self.changes.into_values();
        let complete = changes
            .filter(|change| complete_to.as_ref().is_none_or(|bound| change.key <= *bound))
            .collect();
        (complete, complete_to)
    }
}
