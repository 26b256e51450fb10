//! The keyed state: a memtable of recent changes, and sorted runs on disk.
//!
//! Changes that are only in the write-ahead log are in the [`memtable`]. A checkpoint writes those of
//! a WAL file as one sorted run ([`run`]), and several runs are merged into one ([`merge`]). A merge
//! drops deleted and expired entries as soon as no older run is left that they could hide. A run of
//! which half has expired ([`expiry_histogram`]) is rewritten for that alone.

pub(crate) mod change;
mod expiry_histogram;
pub(crate) mod memtable;
pub(crate) mod merge;
pub(crate) mod page;
pub(crate) mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::change::StateChange;
use self::run::StateRun;
use super::sorted_runs::RunFault;
use crate::StateKey;

/// The sorted runs, oldest first. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateRuns {
    pub(crate) runs: Vec<Arc<StateRun>>,
}

impl StateRuns {
    /// Returns the newest change of `key`.
    pub(crate) fn get(&self, key: &StateKey) -> Result<Option<StateChange>, RunFault> {
        for run in self.runs.iter().rev() {
            if let Some(change) = run.get(key)? {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// Adds the changes of keys with `prefix` after `after` to `range`, at most `per_run` of each
    /// run.
    pub(crate) fn range_into(
        &self,
        range: &mut StateRange,
        prefix: &[u8],
        after: Option<&StateKey>,
        per_run: usize,
    ) -> Result<(), RunFault> {
        for run in self.runs.iter().rev() {
            let changes = run.iter_from(prefix, after)?.take_while(|change| {
                change.as_ref().map_or(true, |change| change.key.as_bytes().starts_with(prefix))
            });
            range.add(per_run, changes)?;
        }
        Ok(())
    }
}

/// The newest change of each key in a range, collected from several sources.
#[derive(Debug, Default)]
pub(crate) struct StateRange {
    changes: BTreeMap<StateKey, StateChange>,
    /// Keys after this one may be missing, because a source reached its limit.
    complete_to: Option<StateKey>,
}

impl StateRange {
    /// Adds at most `limit` changes of a source that is older than those added before.
    pub(crate) fn add(
        &mut self,
        limit: usize,
        source: impl Iterator<Item = Result<StateChange, RunFault>>,
    ) -> Result<(), RunFault> {
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

    /// Returns the complete part of the range in key order, and the key to continue after if there
    /// may be more.
    pub(crate) fn finish(self) -> (Vec<StateChange>, Option<StateKey>) {
        let complete_to = self.complete_to;
        let changes = self.changes.into_values();
        let complete = changes
            .filter(|change| complete_to.as_ref().is_none_or(|bound| change.key <= *bound))
            .collect();
        (complete, complete_to)
    }
}
