//! Merges sorted runs of ids and state, so that look-ups have few files to search.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Checkpointer;
use crate::Incident;
use crate::disk::ids::{self, IdEntry};
use crate::disk::state;
use crate::disk::storage::faults::is_temporary;

impl Checkpointer {
    /// Merges the runs that are due. Without room the runs stay as they are: look-ups take longer, but
    /// nothing else waits.
    pub(super) fn merge_if_there_is_room(&mut self) -> io::Result<()> {
        loop {
            match self.merge_ids().and_then(|merged| Ok(merged || self.merge_state()?)) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if is_temporary(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Merges id runs if enough of one level exist. Returns whether it did.
    fn merge_ids(&mut self) -> io::Result<bool> {
        let runs = self.shared.ids().index.runs.clone();
        let Some(due) = ids::merge::due(&runs) else {
            return Ok(false);
        };
        let mut catalog = self.catalog.clone();
        let number = catalog.take_run_number();
        let firsts: HashMap<_, _> =
            catalog.topics.values().map(|topic| (topic.ordinal, topic.first)).collect();
        let retain = |entry: &IdEntry| firsts.get(&entry.topic).is_none_or(|f| entry.seq >= *f);
        let path = self.shared.layout.id_run(number);
        let merged = match ids::merge::merge(self.shared.layout.fs(), &due, &path, number, retain) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                due.iter().for_each(|run| self.shared.report_rebuilt(&run.path, error.to_string()));
                self.shared.id_rebuild_requested.store(true, Ordering::SeqCst);
                return Ok(false);
            }
            merged => Arc::new(merged?),
        };
        self.shared.layout.fs().sync_folder(&self.shared.layout.ids())?;
        let is_merged = |number: u64| due.iter().any(|run| run.info.number == number);
        catalog.id_runs.retain(|run| !is_merged(run.number));
        catalog.id_runs.push(merged.info);
        self.replace_catalog(catalog)?;
        let mut tables = self.shared.ids_mut();
        tables.index.runs.retain(|run| !is_merged(run.info.number));
        tables.index.runs.push(merged);
        drop(tables);
        self.remove_files(&due.iter().map(|run| run.path.clone()).collect::<Vec<PathBuf>>());
        Ok(true)
    }

    /// Merges state runs if enough of one level exist, or rewrites one that has mostly expired.
    /// Returns whether it did.
    fn merge_state(&mut self) -> io::Result<bool> {
        let mut state = self.shared.state_runs();
        let now = self.shared.options.clock.now();
        let Some(due) = state::merge::due(&state.runs, now) else { return Ok(false) };
        let mut catalog = self.catalog.clone();
        let number = catalog.take_run_number();
        let path = self.shared.layout.state_run(number);
        let old = state.runs[due.clone()].to_vec();
        let older = &state.runs[..due.start];
        let merged =
            match state::merge::merge(self.shared.layout.fs(), &old, older, &path, number, now) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    // The damaged run stays as it is: its readable part is still served.
                    state::merge::mark_damaged(&old);
                    self.shared.report(Incident::DamagedState { detail: error.to_string() });
                    return Ok(false);
                }
                merged => merged?.map(Arc::new),
            };
        self.shared.layout.fs().sync_folder(&self.shared.layout.state())?;
        catalog.state_runs.splice(due.clone(), merged.as_ref().map(|run| run.info));
        self.replace_catalog(catalog)?;
        state.runs.splice(due, merged);
        self.shared.set_state_runs(state);
        self.remove_files(&old.iter().map(|run| run.path.clone()).collect::<Vec<PathBuf>>());
        Ok(true)
    }
}
