//! Merges sorted runs of ids and state, so that look-ups have few files to search.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use prombus_proto::{Seq, Timestamp};

use super::catalog::Catalog;
use super::run_task::{Abandon, Replacement};
use crate::Incident;
use crate::disk::ids::run::IdRun;
use crate::disk::ids::{self, IdEntry, TopicOrdinal};
use crate::disk::shared::Shared;
use crate::disk::state;
use crate::disk::state::run::StateRun;

/// Merges id runs of one level.
pub(super) struct IdMerge {
    runs: Vec<Arc<IdRun>>,
    number: u64,
    /// The first events of all topics. The ids of earlier events and of other topics are dropped.
    firsts: HashMap<TopicOrdinal, Seq>,
    /// How many ids of deleted topics it removes at most.
    dead_ids: u64,
}

impl IdMerge {
    /// Returns the merge that is due, if enough runs of one level exist.
    pub(super) fn due(shared: &Shared, catalog: &mut Catalog) -> Option<Self> {
        let all = shared.ids().index.runs.clone();
        let entries: u64 = all.iter().map(|run| run.info.planned_entries()).sum();
        // With that many ids of deleted topics, all runs are rewritten without them, once none waits for a
        // rebuild.
        let are_readable = !all.is_empty() && !all.iter().any(|run| run.is_set_aside());
        let are_mostly_dead = are_readable && catalog.dead_ids * 2 >= entries.max(1);
        let (runs, dead_ids) = match are_mostly_dead {
            true => (all, catalog.dead_ids),
            false => (ids::merge::due(&all)?, 0),
        };
        let number = catalog.take_run_number();
        let firsts = catalog.topics.values().map(|topic| (topic.ordinal, topic.first)).collect();
        Some(Self { runs, number, firsts, dead_ids })
    }

    /// Writes the merged run. Returns `None` if a run is damaged, and requests a rebuild.
    pub(super) fn run(self, shared: &Shared, abandon: &Abandon) -> io::Result<Option<Replacement>> {
        let Self { runs: old, number, firsts, dead_ids } = self;
        let (layout, path) = (&shared.layout, shared.layout.id_run(number));
        let retain = |entry: &IdEntry| firsts.get(&entry.topic).is_some_and(|f| entry.seq >= *f);
        let merged = ids::merge::merge(layout.fs(), &old, &path, number, retain, abandon);
        match merged.and_then(|run| layout.fs().sync_folder(&layout.ids()).map(|()| run)) {
            Ok(run) => {
                let new = run.map(Arc::new).into_iter().collect();
                Ok(Some(Replacement::Ids { old, new, is_rebuild: false, dead_ids }))
            }
            Err(error) => {
                let _ = layout.fs().remove_file(&path);
                if abandon.is_set() {
                    return Ok(None);
                }
                if error.kind() != io::ErrorKind::InvalidData {
                    return Err(error);
                }
                for run in &old {
                    run.set_aside_if_damaged();
                    if run.is_set_aside() {
                        shared.report_damaged_ids(&run.path, error.to_string());
                    }
                }
                Ok(None)
            }
        }
    }
}

/// Merges adjacent state runs, or rewrites one that has mostly expired.
pub(super) struct StateMerge {
    runs: Vec<Arc<StateRun>>,
    older: Vec<Arc<StateRun>>,
    number: u64,
    now: Timestamp,
}

impl StateMerge {
    /// Returns the merge that is due, if any.
    pub(super) fn due(shared: &Shared, catalog: &mut Catalog) -> Option<Self> {
        let now = shared.options.clock.now();
        let all = shared.state_runs().runs;
        let due = state::merge::due(&all, now)?;
        let (runs, older) = (all[due.clone()].to_vec(), all[..due.start].to_vec());
        Some(Self { runs, older, number: catalog.take_run_number(), now })
    }

    /// Writes the merged run. Returns `None` if a run is damaged: it stays as it is, because its
    /// readable part is still served.
    pub(super) fn run(self, shared: &Shared, abandon: &Abandon) -> io::Result<Option<Replacement>> {
        let Self { runs: old, older, number, now } = self;
        let (layout, path) = (&shared.layout, shared.layout.state_run(number));
        let merged = state::merge::merge(layout.fs(), &old, &older, &path, number, now, abandon);
        match merged.and_then(|run| layout.fs().sync_folder(&layout.state()).map(|()| run)) {
            Ok(run) => Ok(Some(Replacement::State { old, new: run.map(Arc::new) })),
            Err(error) => {
                let _ = layout.fs().remove_file(&path);
                if abandon.is_set() {
                    return Ok(None);
                }
                if error.kind() != io::ErrorKind::InvalidData {
                    return Err(error);
                }
                state::merge::mark_damaged(&old)?;
                shared.report(Incident::DamagedState { detail: error.to_string() });
                Ok(None)
            }
        }
    }
}
