//! Reads a segment with the help of its sparse index.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use prombus_proto::{Seq, Timestamp, Topic};

use super::sparse_index::{self, IndexEntry};
use super::{Segment, SegmentContent, adopted_wal};
use crate::ReadBudget;
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::{ReadAt, RecordRange, RecordWalk, WalkItem};
use crate::disk::shared::Shared;
use crate::disk::storage::faults::is_temporary;
use crate::disk::storage::file_header::SPARSE_INDEX;
use crate::disk::storage::file_system::File;
use crate::disk::wal::EXTENT_BYTES;

/// The most bytes read from a file at a time.
pub(crate) const MAX_CHUNK_BYTES: usize = 1 << 20;
/// The bytes that may lie between an index entry and the wanted event, in a segment of records.
pub(crate) const LEAD_BYTES: usize = 4096;
const _: () = assert!(LEAD_BYTES as u64 >= sparse_index::INTERVAL_BYTES);

/// A segment and its index, open for reading.
pub(crate) struct SegmentReader<'a> {
    shared: &'a Shared,
    pub(crate) path: PathBuf,
    index_path: PathBuf,
    file: Arc<File>,
    /// `None` if the segment is too small for one, or if it cannot be opened.
    index: Option<Arc<File>>,
    topic: &'a Topic,
    seed: RecordSeed,
    segment: &'a Segment,
    /// The record ranges in an adopted WAL file, found by frame headers if the index is damaged.
    ranges_by_headers: OnceLock<Vec<RecordRange>>,
}

impl<'a> SegmentReader<'a> {
    pub(crate) fn open(
        shared: &'a Shared,
        topic: &'a Topic,
        seed: RecordSeed,
        segment: &'a Segment,
    ) -> io::Result<Self> {
        let path = shared.layout.file_of(topic, segment);
        let index_path = shared.layout.sparse_index(topic, segment.first);
        let cache = &shared.file_cache;
        let file = cache.open(&path, segment.file_kind(), |detail| {
            shared.report_rebuilt(&path, detail);
        })?;
        let index = if segment.index_entries == 0 {
            None
        } else {
            match cache.open(&index_path, SPARSE_INDEX, |detail| {
                shared.report_rebuilt(&index_path, detail);
            }) {
                Ok(index) => Some(index),
                Err(error) if is_temporary(&error) => return Err(error),
                Err(error) => {
                    shared.report_rebuilt(&index_path, error.to_string());
                    None
                }
            }
        };
        let ranges_by_headers = OnceLock::new();
        Ok(Self { shared, path, index_path, file, index, topic, seed, segment, ranges_by_headers })
    }

    fn start(&self) -> IndexEntry {
        IndexEntry {
            seq: self.segment.first,
            offset: self.segment.first_record(),
            latest_ts_before: Timestamp(0),
            newest_id_before: 0,
        }
    }

    /// Returns the last index entry for which `is_before` holds, or the start of the segment if
    /// there is none or the index is unusable.
    pub(crate) fn last_entry_before(&self, is_before: impl Fn(&IndexEntry) -> bool) -> IndexEntry {
        self.entries_around(is_before).0
    }

    /// The same, and the first index entry for which `is_before` does not hold.
    pub(crate) fn entries_around(
        &self,
        is_before: impl Fn(&IndexEntry) -> bool,
    ) -> (IndexEntry, Option<IndexEntry>) {
        let found = self.index.as_ref().map_or(Ok((None, None)), |index| {
            sparse_index::bisect(index, self.segment.index_entries, is_before)
        });
        match found {
            Ok((before, after)) => (before.unwrap_or_else(|| self.start()), after),
            Err(detail) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                (self.start(), None)
            }
        }
    }

    /// Returns the next indexed record after damage at `offset`.
    fn resume_after(&self, offset: u64) -> Option<(u64, Seq)> {
        let index = self.index.as_ref()?;
        match sparse_index::first_after(index, self.segment.index_entries, offset) {
            Ok(entry) => entry.map(|entry| (entry.offset, entry.seq)),
            Err(detail) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                None
            }
        }
    }

    /// Iterates over the segment from `start` on, reading `chunk` bytes at a time.
    pub(crate) fn walk(
        &self,
        start: IndexEntry,
        chunk: usize,
    ) -> io::Result<SegmentWalk<'_, impl ReadAt>> {
        let all = RecordRange {
            seed: self.seed,
            start: start.offset,
            end: self.segment.end,
            first: start.seq,
            last: self.segment.last,
        };
        let range = match self.segment.content {
            SegmentContent::Records | SegmentContent::Packed { .. } => all,
            SegmentContent::Frames { .. } => self.range_of(start.seq)?.unwrap_or(all),
        };
        let read_at = |offset, bytes| self.file.read_available(offset, bytes);
        let walk = RecordWalk::new(range, chunk, read_at).reading_ahead_to(self.segment.end);
        Ok(SegmentWalk { reader: self, walk })
    }

    /// Returns the record range of an adopted WAL file that `seq` is in, or else the next one.
    fn range_of(&self, seq: Seq) -> io::Result<Option<RecordRange>> {
        let is_adopted = matches!(self.segment.content, SegmentContent::Frames { .. });
        if !is_adopted || seq > self.segment.last {
            return Ok(None);
        }
        let by_index = self.index.as_ref().map(|index| {
            sparse_index::extent_of(index, self.segment.index_entries, seq).map(|extent| {
                let (this, next) = extent?;
                Some(RecordRange {
                    seed: self.seed,
                    start: this.offset,
                    end: next.map_or(self.segment.end, |next| next.offset),
                    first: this.seq,
                    last: next.map_or(self.segment.last, |next| next.seq.previous()),
                })
            })
        });
        match by_index {
            Some(Ok(range)) => Ok(range),
            Some(Err(detail)) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                self.range_by_headers(seq)
            }
            None => self.range_by_headers(seq),
        }
    }

    fn range_by_headers(&self, seq: Seq) -> io::Result<Option<RecordRange>> {
        let ranges = match self.ranges_by_headers.get() {
            Some(ranges) => ranges,
            None => {
                let (end, seed) = (self.segment.end, self.seed);
                let found = adopted_wal::ranges_by_headers(&self.file, end, self.topic, seed)?;
                self.ranges_by_headers.get_or_init(|| found)
            }
        };
        Ok(ranges.get(ranges.partition_point(|range| range.last < seq)).copied())
    }

    /// The average size of a record of the segment; never 0.
    pub(crate) fn average_bytes(&self) -> usize {
        let events = self.segment.last.0 - self.segment.first.0 + 1;
        let average = self.segment.bytes() / events.max(1) + 1;
        usize::try_from(average).unwrap_or(MAX_CHUNK_BYTES)
    }

    /// How many bytes to read at a time: about what the budget can use.
    pub(crate) fn chunk_for(&self, budget: ReadBudget) -> usize {
        let by_events = budget.events.saturating_mul(self.average_bytes());
        let lead = match self.segment.content {
            SegmentContent::Records | SegmentContent::Packed { .. } => LEAD_BYTES,
            SegmentContent::Frames { .. } => EXTENT_BYTES,
        };
        by_events.min(budget.bytes).saturating_add(lead).min(MAX_CHUNK_BYTES)
    }
}

/// Iterates over the records of a segment and skips what lies between them.
pub(crate) struct SegmentWalk<'a, R> {
    reader: &'a SegmentReader<'a>,
    walk: RecordWalk<R>,
}

impl<R: ReadAt> SegmentWalk<'_, R> {
    /// Returns the next event or damage, or `None` after the last.
    pub(crate) fn next(&mut self) -> io::Result<Option<WalkItem>> {
        loop {
            if let Some(item) = self.walk.next(|offset| self.reader.resume_after(offset))? {
                return Ok(Some(item));
            }
            match self.reader.range_of(self.walk.expected())? {
                Some(range) => self.walk.continue_with(range),
                None => return Ok(self.walk.skip_to_after(self.reader.segment.last)),
            }
        }
    }
}
