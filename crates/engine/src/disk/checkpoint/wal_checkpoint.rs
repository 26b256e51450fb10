//! The checkpoint of one sealed WAL file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use prombus_proto::{Seq, Timestamp, Topic};

use super::Checkpointer;
use super::catalog::{Catalog, CatalogTopic};
use super::sealed_wal::{SealedWal, TouchedTopic};
use crate::Incident;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::recent::RecentIds;
use crate::disk::ids::run::{self as id_run, IdRun};
use crate::disk::record::RecordSeed;
use crate::disk::segment::adopted_wal;
use crate::disk::segment::writer::SegmentWriter;
use crate::disk::state::run::{self as state_run, StateRun};
use crate::disk::storage::quarantine::link_into_quarantine;
use crate::disk::wal::WalExtent;
use crate::disk::wal::coalesced_read::read_next;

/// With more files than this, one sync of the whole filesystem is cheaper than one per file.
const MAX_FILE_SYNCS: usize = 64;

/// What was written for one topic.
#[derive(Default)]
struct WrittenTopic {
    /// Files and folders to sync.
    dirty: Vec<PathBuf>,
    found_damage: bool,
}

impl Checkpointer {
    /// Moves the content of a WAL file into segments and sorted runs, and removes the file.
    pub(super) fn checkpoint(&mut self, sealed: &SealedWal) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let number = sealed.file.number;
        let mut catalog = self.catalog.clone();
        let mut damaged = sealed.damaged;
        let (mut dirty, mut dropped) = (Vec::new(), Vec::new());
        for (topic, touched) in &sealed.touched {
            let mut written = self.write_topic(sealed, topic, touched, &mut catalog)?;
            dirty.append(&mut written.dirty);
            damaged |= written.found_damage;
            let row = catalog.topics.get_mut(topic).expect("`write_topic` added it");
            dropped.append(&mut row.drop_trimmed(&shared.layout, topic));
        }
        self.sync(dirty)?;
        let ids = self.write_ids(&sealed.ids, &mut catalog)?;
        let state = self.write_state(number, &mut catalog)?;
        if damaged {
            link_into_quarantine(&shared.layout, &sealed.file.path)?;
        }
        catalog.checkpointed_wal = number;
        catalog.next_frame = sealed.next_frame;
        catalog.last_version = sealed.last_version;
        self.replace_catalog(catalog)?;
        sealed.file.mark_checkpointed();
        self.publish(sealed, ids, state);
        self.remove_files(&dropped);
        // If it cannot be removed, the next start does so.
        self.remove_files(std::slice::from_ref(&sealed.file.path));
        Ok(())
    }

    /// Writes the events of `topic` into its segments, or adopts the WAL file as a segment.
    fn write_topic(
        &self,
        sealed: &SealedWal,
        topic: &Topic,
        touched: &TouchedTopic,
        catalog: &mut Catalog,
    ) -> io::Result<WrittenTopic> {
        let (layout, options) = (&self.shared.layout, &self.shared.options);
        let (extents, row) = self.topic_in_wal(topic, sealed.file.number, catalog);
        row.first = touched.first;
        row.next = touched.next;
        row.newest_ids = touched.newest_ids;
        row.rule = touched.rule;
        row.trimmed_arrival = touched.trimmed_arrival;
        if adopted_wal::is_worth_adopting(sealed, &extents, &row.segments, options) {
            let (newest_id, now) = (touched.newest_ids.monotonic, options.clock.now());
            let adopted = adopted_wal::adopt(layout, topic, sealed, &extents, newest_id, now)?;
            if let Some((segment, dirty)) = adopted {
                row.segments.push(segment);
                return Ok(WrittenTopic { dirty, found_damage: false });
            }
        }
        let mut written = WrittenTopic::default();
        let seed = RecordSeed::of(topic);
        let has_age_limit =
            self.shared.view().topics.get(topic).is_some_and(|view| view.has_age_limit);
        let mut writer = SegmentWriter::new(layout, options, topic, seed, &mut row.segments);
        if has_age_limit {
            writer = writer.rolling_by_age();
        }
        let mut rest = &extents[..];
        while let Some(read) = read_next(&mut rest)? {
            for extent in read.extents.iter().filter(|extent| extent.last() >= touched.first) {
                for lost in writer.append(extent, &read.bytes_of(extent))? {
                    written.found_damage = true;
                    self.shared.report(Incident::DamagedEvents {
                        topic: topic.clone(),
                        first: lost.first,
                        last: lost.last,
                        file: extent.file.path.clone(),
                        detail: "no valid record".to_owned(),
                    });
                }
            }
        }
        writer.flush()?;
        written.dirty.append(&mut writer.dirty);
        Ok(written)
    }

    /// Returns the extents of `topic` in WAL files up to `number`, and its row in `catalog`.
    fn topic_in_wal<'a>(
        &self,
        topic: &Topic,
        number: u64,
        catalog: &'a mut Catalog,
    ) -> (Vec<WalExtent>, &'a mut CatalogTopic) {
        let view = self.shared.view();
        let view = view.topics.get(topic);
        let extents = view.map_or_else(Vec::new, |view| {
            view.wal.iter().take_while(|extent| extent.file.number <= number).cloned().collect()
        });
        let row = catalog.topics.entry(topic.clone()).or_insert_with(|| CatalogTopic {
            ordinal: view.expect("a touched topic is in the view").ordinal,
            first: Seq::FIRST,
            next: Seq::FIRST,
            newest_ids: NewestIds::default(),
            rule: 0,
            trimmed_arrival: Timestamp(0),
            segments: Vec::new(),
        });
        (extents, row)
    }

    /// Makes files and folders durable.
    fn sync(&self, mut dirty: Vec<PathBuf>) -> io::Result<()> {
        let fs = self.shared.layout.fs();
        self.shared.options.faults.before_sync()?;
        dirty.sort_unstable();
        dirty.dedup();
        if dirty.len() > MAX_FILE_SYNCS {
            return fs.sync_everything(self.shared.layout.root());
        }
        dirty.iter().try_for_each(|path| fs.sync(path))
    }

    fn write_ids(&self, ids: &RecentIds, catalog: &mut Catalog) -> io::Result<Option<IdRun>> {
        let entries = ids.sorted();
        if entries.is_empty() {
            return Ok(None);
        }
        let number = catalog.take_run_number();
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
        catalog.id_runs.push(run.info);
        Ok(Some(run))
    }

    fn write_state(&self, wal: u64, catalog: &mut Catalog) -> io::Result<Option<StateRun>> {
        let changes = self.shared.view().memtable.changes_up_to(wal);
        if changes.is_empty() {
            return Ok(None);
        }
        let number = catalog.take_run_number();
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
        catalog.state_runs.extend(run.as_ref().map(|run| run.info));
        Ok(run)
    }

    /// Switches readers to the new files and drops the file's content from memory.
    fn publish(&self, sealed: &SealedWal, ids: Option<IdRun>, state: Option<StateRun>) {
        let number = sealed.file.number;
        // Before the memtable lets go of it: a key has to be in at least one of the two.
        if let Some(run) = state {
            let mut state_runs = self.shared.state_runs();
            state_runs.runs.push(Arc::new(run));
            self.shared.set_state_runs(state_runs);
        }
        let mut view = self.shared.view_mut();
        for topic in sealed.touched.keys() {
            let segments = &self.catalog.topics[topic].segments;
            view.topic_mut(topic).apply_checkpoint(segments, number);
        }
        view.memtable.remove_up_to(number);
        drop(view);
        // After the segments: an id that is in no table any more has to be found in them.
        let mut tables = self.shared.ids_mut();
        tables.index.runs.extend(ids.map(Arc::new));
        tables.index.sealed.retain(|table| !Arc::ptr_eq(table, &sealed.ids));
    }
}
