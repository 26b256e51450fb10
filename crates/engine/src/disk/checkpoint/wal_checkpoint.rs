//! The checkpoint of one sealed WAL file.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::{io, mem};

use prombus_proto::Topic;

use super::Checkpointer;
use super::catalog::edit::{CatalogEdit, TopicEdit};
use super::sealed_wal::SealedWal;
use crate::disk::ids::recent::RecentIds;
use crate::disk::ids::run::{self as id_run, IdRun};
use crate::disk::state::run::{self as state_run, StateRun};
use crate::disk::storage::quarantine::link_into_quarantine;

/// How many topics are switched to their new segments before readers and commits get their turn.
const TOPICS_PER_LOCK: usize = 256;
/// With more files than this, one sync of the whole filesystem writes them faster than one per file.
const MAX_FILE_SYNCS: usize = 64;
/// With more files than this, what the filesystem says of errors has to do: the sync of a file without
/// changes still flushes the cache of the disk, which took 5 ms on a busy one.
const MAX_FILE_CHECKS: usize = 1024;

impl Checkpointer {
    /// Moves the content of a WAL file into segments and sorted runs, and removes the file.
    pub(super) fn checkpoint(&mut self, sealed: &SealedWal) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let number = sealed.file.number;
        let mut edit = self.catalog.edit();
        let mut written = self.write_topics(sealed, &mut edit)?;
        self.sync(mem::take(&mut written.dirty))?;
        let ids = self.write_ids(&sealed.ids, &written.deleted, &mut edit)?;
        let state = self.write_state(number, &mut edit)?;
        if written.found_damage {
            link_into_quarantine(&shared.layout, &sealed.file.path)?;
        }
        edit.checkpointed_wal = number;
        edit.next_frame = sealed.next_frame;
        edit.last_version = sealed.last_version;
        for (topic, row) in written.rows {
            let topic_edit = TopicEdit::between(self.catalog.topics.get(&topic), row);
            edit.topics.insert(topic, topic_edit);
        }
        for topic in &written.deleted {
            if let Some(row) = self.catalog.topics.get(topic) {
                if !self.catalog.id_runs.is_empty() {
                    edit.dead_ids = edit.dead_ids.saturating_add(row.next.previous().0);
                }
                edit.removed.insert(topic.clone());
            }
        }
        let removed: Vec<_> = edit.removed.iter().cloned().collect();
        let changed = self.change_catalog(edit)?;
        sealed.file.mark_checkpointed();
        self.publish(sealed, &changed, ids, state);
        self.remove_files(&written.dropped);
        removed.iter().for_each(|topic| self.remove_folder(topic));
        shared.may_forget(written.deleted.into_iter().collect(), number);
        self.remove_unused_packs();
        // If it cannot be removed, the next start does so.
        self.remove_files(std::slice::from_ref(&sealed.file.path));
        Ok(())
    }

    /// Makes files and folders durable.
    fn sync(&self, mut dirty: Vec<PathBuf>) -> io::Result<()> {
        let fs = self.shared.layout.fs();
        self.shared.options.faults.before_sync()?;
        dirty.sort_unstable();
        dirty.dedup();
        if dirty.len() > MAX_FILE_SYNCS {
            self.root.sync_filesystem()?;
            if dirty.len() > MAX_FILE_CHECKS {
                return Ok(());
            }
        }
        // After a sync of the filesystem as well: there is nothing left to write then, but a file knows of
        // an error that the filesystem, such as one that is stacked on another, may not have told.
        dirty.iter().try_for_each(|path| fs.sync(path))
    }

    /// Writes the ids of a WAL file, except for those of `deleted` topics.
    fn write_ids(
        &self,
        ids: &RecentIds,
        deleted: &BTreeSet<Topic>,
        edit: &mut CatalogEdit,
    ) -> io::Result<Option<IdRun>> {
        let mut entries = ids.sorted();
        if !deleted.is_empty() {
            let view = self.shared.view();
            let ordinals = deleted.iter().filter_map(|topic| Some(view.topics.get(topic)?.ordinal));
            let ordinals: HashSet<_> = ordinals.collect();
            entries.retain(|entry| !ordinals.contains(&entry.topic));
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let number = edit.take_run_number();
        let path = self.shared.layout.id_run(number);
        let count = entries.len() as u64;
        let entries = entries.into_iter().map(Ok);
        let run = id_run::write_run(
            self.shared.layout.fs(),
            &path,
            number,
            0,
            ids.coverage(),
            count,
            entries,
        )?;
        self.shared.layout.fs().sync_folder(&self.shared.layout.ids())?;
        edit.id_runs.push(run.info);
        Ok(Some(run))
    }

    fn write_state(&self, wal: u64, edit: &mut CatalogEdit) -> io::Result<Option<StateRun>> {
        let changes = self.shared.view().memtable.changes_up_to(wal);
        if changes.is_empty() {
            return Ok(None);
        }
        let number = edit.take_run_number();
        let path = self.shared.layout.state_run(number);
        let count = changes.len() as u64;
        let run = state_run::write_run(
            self.shared.layout.fs(),
            &path,
            number,
            0,
            count,
            changes.into_iter().map(Ok),
        )?;
        self.shared.layout.fs().sync_folder(&self.shared.layout.state())?;
        edit.state_runs.extend(run.as_ref().map(|run| run.info));
        Ok(run)
    }

    /// Switches readers to the new files and drops the file's content from memory.
    fn publish(
        &self,
        sealed: &SealedWal,
        changed: &[Topic],
        ids: Option<IdRun>,
        state: Option<StateRun>,
    ) {
        let number = sealed.file.number;
        // Before the memtable lets go of it: a key has to be in at least one of the two.
        if let Some(run) = state {
            let mut state_runs = self.shared.state_runs();
            state_runs.runs.push(Arc::new(run));
            self.shared.set_state_runs(state_runs);
        }
        for topics in changed.chunks(TOPICS_PER_LOCK) {
            let mut view = self.shared.view_mut();
            for topic in topics {
                let segments = &self.catalog.topics[topic].segments;
                view.topic_mut(topic).apply_checkpoint(segments, number);
            }
        }
        let mut view = self.shared.view_mut();
        view.memtable.remove_up_to(number);
        view.wal_ends.retain(|left, _| *left > number);
        drop(view);
        // After the segments: an id that is in no table any more has to be found in them.
        let mut tables = self.shared.ids_mut();
        tables.index.runs.extend(ids.map(Arc::new));
        tables.index.sealed.retain(|table| !Arc::ptr_eq(table, &sealed.ids));
    }
}
