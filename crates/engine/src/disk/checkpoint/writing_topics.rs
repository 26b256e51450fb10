//! Writes the events of a sealed WAL file into segments and packs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use prombus_proto::{Seq, Timestamp, Topic};

use super::Checkpointer;
use super::catalog::CatalogTopic;
use super::catalog::edit::CatalogEdit;
use super::packing::Placement;
use super::sealed_wal::{SealedWal, TouchedTopic};
use crate::Incident;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::record::RecordSeed;
use crate::disk::segment::pack::PackWriter;
use crate::disk::segment::record_block::{DamagedRange, RecordBlock};
use crate::disk::segment::writer::SegmentWriter;
use crate::disk::segment::{Segment, adopted_wal};
use crate::disk::shared::Shared;
use crate::disk::wal::WalExtent;
use crate::disk::wal::coalesced_read::read_next;

/// The events of a topic that are in the write-ahead log, and its row in the catalog.
struct TopicInWal {
    extents: Vec<WalExtent>,
    row: CatalogTopic,
    has_age_limit: bool,
}

/// What a checkpoint wrote so far.
#[derive(Default)]
pub(super) struct WrittenTopics {
    /// The new rows of the topics.
    pub(super) rows: BTreeMap<Topic, CatalogTopic>,
    /// Topics that were deleted and have no event since.
    pub(super) deleted: BTreeSet<Topic>,
    pack: Option<PackWriter>,
    /// Files and folders to sync.
    pub(super) dirty: Vec<PathBuf>,
    /// Files that are not needed any more once the catalog is changed.
    pub(super) dropped: Vec<PathBuf>,
    pub(super) found_damage: bool,
}

impl WrittenTopics {
    /// Returns the pack of this checkpoint, which it creates if there is none yet.
    pub(super) fn pack(
        &mut self,
        shared: &Shared,
        edit: &mut CatalogEdit,
    ) -> io::Result<&mut PackWriter> {
        let pack = match self.pack.take() {
            Some(pack) => pack,
            None => {
                let (number, now) = (edit.take_run_number(), shared.options.clock.now());
                PackWriter::create(&shared.layout, number, now)?
            }
        };
        Ok(self.pack.insert(pack))
    }
}

impl Checkpointer {
    /// Writes the events of all topics in the file. If it fails, it leaves no pack.
    pub(super) fn write_topics(
        &mut self,
        sealed: &SealedWal,
        edit: &mut CatalogEdit,
    ) -> io::Result<WrittenTopics> {
        let mut written =
            WrittenTopics { found_damage: sealed.damaged, ..WrittenTopics::default() };
        let many_small = self.has_many_small_topics(sealed);
        let result = sealed
            .touched
            .iter()
            .try_for_each(|(topic, touched)| {
                self.write_topic(sealed, topic, touched, many_small, edit, &mut written)
            })
            .and_then(|()| self.empty_sparse_packs(edit, &mut written));
        let Some(pack) = written.pack.take() else { return result.map(|()| written) };
        let path = pack.path().to_owned();
        match result.and_then(|()| pack.finish()) {
            Ok(()) => {
                written.dirty.extend([path, self.shared.layout.packs()]);
                Ok(written)
            }
            Err(error) => {
                self.remove_files(&[path]);
                Err(error)
            }
        }
    }

    /// Writes the events of `topic` into its segments or into the pack, or adopts the WAL file as a
    /// segment.
    fn write_topic(
        &self,
        sealed: &SealedWal,
        topic: &Topic,
        touched: &TouchedTopic,
        many_small: bool,
        edit: &mut CatalogEdit,
        written: &mut WrittenTopics,
    ) -> io::Result<()> {
        let (layout, options) = (&self.shared.layout, &self.shared.options);
        if touched.is_deleted {
            if let Some(row) = self.catalog.topics.get(topic) {
                written.dropped.append(&mut row.files(layout, topic));
            }
            written.deleted.insert(topic.clone());
            return Ok(());
        }
        let mut found = self.topic_in_wal(topic, sealed.file.number);
        let row = &mut found.row;
        row.first = touched.first;
        row.next = touched.next;
        row.newest_ids = touched.newest_ids;
        row.rule = touched.rule;
        row.trimmed_arrival = touched.trimmed_arrival;
        written.dropped.append(&mut row.drop_trimmed(layout, topic));
        if adopted_wal::is_worth_adopting(sealed, &found.extents, &row.segments, options) {
            let (newest_id, now) = (touched.newest_ids.monotonic, options.clock.now());
            let adopted =
                adopted_wal::adopt(layout, topic, sealed, &found.extents, newest_id, now)?;
            if let Some((segment, mut dirty)) = adopted {
                row.segments.push(segment);
                written.dirty.append(&mut dirty);
                written.rows.insert(topic.clone(), found.row);
                return Ok(());
            }
        }
        // Extents of which everything was trimmed are left out.
        found.extents.retain(|extent| extent.last() >= touched.first);
        if !found.extents.is_empty() {
            let bytes = found.extents.iter().map(|extent| u64::from(extent.bytes)).sum();
            let seed = RecordSeed::of(topic);
            match self.place(row, seed, bytes, many_small, found.has_age_limit)? {
                Placement::OwnFiles { tail } => {
                    self.write_own_files(topic, &mut found, &tail, written)?;
                }
                Placement::Pack { tail } => {
                    self.write_packed(topic, &mut found, &tail, edit, written)?;
                }
            }
        }
        written.rows.insert(topic.clone(), found.row);
        Ok(())
    }

    fn write_own_files(
        &self,
        topic: &Topic,
        found: &mut TopicInWal,
        tail: &[(Segment, Vec<u8>)],
        written: &mut WrittenTopics,
    ) -> io::Result<()> {
        let (layout, options) = (&self.shared.layout, &self.shared.options);
        let seed = RecordSeed::of(topic);
        let mut writer = SegmentWriter::new(layout, options, topic, seed, &mut found.row.segments);
        if found.has_age_limit {
            writer = writer.rolling_by_age();
        }
        for (segment, bytes) in tail {
            writer.append_segment(segment, bytes)?;
        }
        let mut rest = &found.extents[..];
        while let Some(read) = read_next(&mut rest)? {
            for extent in read.extents {
                let damaged = writer.append(&RecordBlock::from(extent), &read.bytes_of(extent))?;
                self.report_damaged(topic, extent, damaged, written);
            }
        }
        writer.flush()?;
        written.dirty.append(&mut writer.dirty);
        Ok(())
    }

    fn write_packed(
        &self,
        topic: &Topic,
        found: &mut TopicInWal,
        tail: &[(Segment, Vec<u8>)],
        edit: &mut CatalogEdit,
        written: &mut WrittenTopics,
    ) -> io::Result<()> {
        let seed = RecordSeed::of(topic);
        let segments = &mut found.row.segments;
        // A checkpoint that is repeated after a crash finds events that the segments already have.
        let last = segments.last().map_or(Seq::ZERO, |segment| segment.last);
        found.extents.retain(|extent| extent.last() > last);
        let oldest = tail.first().map(|(segment, _)| segment);
        let first = oldest.map(RecordBlock::from);
        let Some(first) = first.or_else(|| found.extents.first().map(RecordBlock::from)) else {
            return Ok(());
        };
        let now = self.shared.options.clock.now();
        let created_at = oldest.map_or(now, |segment| segment.created_at);
        let pack = written.pack(&self.shared, edit)?;
        let mut segment = pack.start_segment(&first, segments.last(), created_at);
        for (merged, bytes) in tail {
            pack.append_segment(&mut segment, merged, bytes)?;
        }
        let mut rest = &found.extents[..];
        while let Some(read) = read_next(&mut rest)? {
            for extent in read.extents {
                let (block, bytes) = (RecordBlock::from(extent), read.bytes_of(extent));
                let pack = written.pack(&self.shared, edit)?;
                let damaged = pack.append(&mut segment, seed, &block, &bytes)?;
                self.report_damaged(topic, extent, damaged, written);
            }
        }
        if segment.bytes() > 0 {
            segments.push(segment);
        }
        Ok(())
    }

    fn report_damaged(
        &self,
        topic: &Topic,
        extent: &WalExtent,
        damaged: Vec<DamagedRange>,
        written: &mut WrittenTopics,
    ) {
        for lost in damaged {
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

    /// Returns what WAL files up to `number` have of `topic`.
    fn topic_in_wal(&self, topic: &Topic, number: u64) -> TopicInWal {
        let view = self.shared.view();
        let view = view.topics.get(topic);
        let extents = view.map_or_else(Vec::new, |view| {
            view.wal.iter().take_while(|extent| extent.file.number <= number).cloned().collect()
        });
        let row = self.catalog.topics.get(topic).cloned().unwrap_or_else(|| CatalogTopic {
            ordinal: view.expect("a touched topic is in the view").ordinal,
            first: Seq::FIRST,
            next: Seq::FIRST,
            newest_ids: NewestIds::default(),
            rule: 0,
            trimmed_arrival: Timestamp(0),
            segments: Vec::new(),
        });
        TopicInWal { extents, row, has_age_limit: view.is_some_and(|view| view.has_age_limit) }
    }
}
