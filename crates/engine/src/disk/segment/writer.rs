//! Appends records from the write-ahead log to a topic's segments.

use std::io;
use std::path::PathBuf;

use prombus_proto::{Seq, Timestamp, Topic};

use super::record_block::{DamagedRange, RecordBlock, for_each_record};
use super::sparse_index::{self, ENTRY_BYTES, INTERVAL_BYTES, IndexEntry};
use super::{Segment, SegmentContent};
use crate::disk::options::DiskOptions;
use crate::disk::record::walk::{RecordRange, RecordWalk, WalkItem};
use crate::disk::record::{Record, RecordSeed};
use crate::disk::storage::file_header::{self, HEADER_BYTES, SEGMENT, SPARSE_INDEX};
use crate::disk::storage::file_system::{Access, File};
use crate::disk::storage::layout::Layout;

/// How many bytes are buffered before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Appends to the segments of one topic. Readers see the new records after the checkpoint.
pub(crate) struct SegmentWriter<'a> {
    layout: &'a Layout,
    options: &'a DiskOptions,
    topic: &'a Topic,
    seed: RecordSeed,
    segments: &'a mut Vec<Segment>,
    open: Option<OpenSegment>,
    now: Timestamp,
    /// The age at which the last segment is not appended to any more.
    max_age_ms: Option<u64>,
    /// Files and folders to sync.
    pub(crate) dirty: Vec<PathBuf>,
}

struct OpenSegment {
    file: File,
    records: Vec<u8>,
    index: Vec<u8>,
    /// The offset of the last indexed record, or of the first record if none is indexed.
    indexed_to: u64,
}

impl<'a> SegmentWriter<'a> {
    pub(crate) fn new(
        layout: &'a Layout,
        options: &'a DiskOptions,
        topic: &'a Topic,
        seed: RecordSeed,
        segments: &'a mut Vec<Segment>,
    ) -> Self {
        let now = options.clock.now();
        let (open, max_age_ms, dirty) = (None, None, Vec::new());
        Self { layout, options, topic, seed, segments, open, now, max_age_ms, dirty }
    }

    /// Starts a new segment when the last one has reached the age of the options. Retention drops
    /// whole segments, so it needs this if it limits the age of events. Otherwise a topic with little
    /// traffic would only get many small files.
    pub(crate) fn rolling_by_age(mut self) -> Self {
        self.max_age_ms = Some(self.options.segment_age_ms);
        self
    }

    /// Appends the records of `block`, whose content is `bytes`. Skips events that the segments
    /// already have. Returns the damaged events.
    pub(crate) fn append(
        &mut self,
        block: &RecordBlock,
        bytes: &[u8],
    ) -> io::Result<Vec<DamagedRange>> {
        for_each_record(self.seed, block, bytes, |record, bytes| {
            if self.segments.last().is_none_or(|segment| segment.last < record.seq) {
                self.append_record(block, record, bytes)?;
            }
            Ok(())
        })
    }

    fn append_record(
        &mut self,
        block: &RecordBlock,
        record: &Record<'_>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let now = self.now;
        let (open, segment) = self.make_room(record.seq, bytes.len(), block.newest_id_before)?;
        open.records.extend_from_slice(bytes);
        segment.add(block, record, now);
        self.flush_if_large()
    }

    /// Appends all records of `copied`, a small segment after the last one, which are `bytes`.
    ///
    /// As a whole: of its ids, only the newest is known to be monotonic. Those before it may have been
    /// far ahead of the clock when they were stored.
    pub(crate) fn append_segment(&mut self, copied: &Segment, bytes: &[u8]) -> io::Result<()> {
        let now = self.now;
        let (open, segment) = self.make_room(copied.first, bytes.len(), copied.newest_id_before)?;
        open.records.extend_from_slice(bytes);
        segment.add_segment(copied, now);
        self.flush_if_large()
    }

    /// Opens the segment that gets the next `bytes` bytes of records, a new one if the last one is
    /// full, and indexes the first of these records, `seq`, if that is due.
    fn make_room(
        &mut self,
        seq: Seq,
        bytes: usize,
        newest_id_before: u128,
    ) -> io::Result<(&mut OpenSegment, &mut Segment)> {
        // Once it is open, its age does not count: what it got meanwhile may be from the future.
        let max_age_ms = self.max_age_ms.filter(|_| self.open.is_none());
        let full = self.segments.last().is_none_or(|segment| {
            segment.content != SegmentContent::Records
                || segment.end + bytes as u64 > self.options.segment_bytes
                || max_age_ms.is_some_and(|max| !segment.is_young(self.now, max))
        });
        if full || self.open.is_none() && !self.last_is_intact()? {
            self.flush()?;
            self.open = None;
            let newest_id = self.segments.last().map_or(0, |segment| segment.newest_id);
            let newest_id = newest_id.max(newest_id_before);
            let (content, start) = (SegmentContent::Records, HEADER_BYTES as u64);
            self.segments.push(Segment::empty(seq, content, start, newest_id, self.now));
        }
        if self.open.is_none() {
            self.open = Some(self.open_last()?);
        }
        let segment = self.segments.last_mut().expect("pushed above");
        let open = self.open.as_mut().expect("opened above");
        if segment.end - open.indexed_to >= INTERVAL_BYTES {
            let entry = IndexEntry {
                seq,
                offset: segment.end,
                latest_ts_before: segment.latest_ts,
                newest_id_before: segment.newest_id,
            };
            entry.append_to(&mut open.index);
            open.indexed_to = segment.end;
            segment.index_entries += 1;
        }
        Ok((open, segment))
    }

    fn flush_if_large(&mut self) -> io::Result<()> {
        let is_large = self.open.as_ref().is_some_and(|open| open.records.len() >= WRITE_BYTES);
        if is_large { self.flush() } else { Ok(()) }
    }

    /// Returns `true` if the last segment can be appended to: the file is the right one, and the end
    /// of it is readable. Readers would not find records after damage, unless an index entry lies in
    /// between. A damaged segment is left as it is.
    fn last_is_intact(&self) -> io::Result<bool> {
        let fs = self.layout.fs();
        let segment = self.segments.last().expect("the caller checked that there is one");
        let file = match fs.open(&self.layout.segment(self.topic, segment.first), Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let is_right_file = file_header::read(&file, SEGMENT)? == Ok(segment.first.0);
        if !is_right_file || file.len()? < segment.end {
            return Ok(false);
        }
        let indexed = self.last_index_entry();
        let range = RecordRange {
            seed: self.seed,
            start: indexed.map_or(HEADER_BYTES as u64, |entry| entry.offset),
            end: segment.end,
            first: indexed.map_or(segment.first, |entry| entry.seq),
            last: segment.last,
        };
        let read_at = |offset, bytes| file.read_available(offset, bytes);
        let mut walk = RecordWalk::new(range, 16 << 10, read_at);
        let mut ends_with = None;
        while let Some(item) = walk.next(|_| None)? {
            ends_with = match item {
                WalkItem::Event(event) => Some(event.seq),
                WalkItem::Damaged { .. } => None,
            };
        }
        Ok(ends_with == Some(segment.last))
    }

    /// Reads the last entry of the last segment's index. `None` if there is none or it is damaged.
    fn last_index_entry(&self) -> Option<IndexEntry> {
        let segment = self.segments.last()?;
        let last = segment.index_entries.checked_sub(1)?;
        let path = self.layout.sparse_index(self.topic, segment.first);
        let index = self.layout.fs().open(&path, Access::Read).ok()?;
        sparse_index::entry(&index, last).ok()
    }

    fn open_last(&mut self) -> io::Result<OpenSegment> {
        let segment = self.segments.last().expect("the caller checked that there is one");
        let (fs, path) = (self.layout.fs(), self.layout.segment(self.topic, segment.first));
        let is_new = segment.end == HEADER_BYTES as u64;
        if is_new {
            fs.create_folder(&self.layout.topic(self.topic))?;
            self.dirty.push(self.layout.topic(self.topic));
            self.dirty.push(self.layout.topics());
            // An unfinished checkpoint may have linked a WAL file here, which must not be overwritten.
            fs.remove_if_exists(&path)?;
        }
        let access = if is_new { Access::CreateOrWrite } else { Access::Write };
        let file = fs.open(&path, access)?;
        // Drops what an unfinished checkpoint appended.
        file.set_len(segment.end)?;
        if is_new {
            file.write_all_at(&file_header::encode(SEGMENT, segment.first.0), 0)?;
        }
        self.dirty.push(path);
        let indexed_to = match self.last_index_entry() {
            Some(entry) => entry.offset,
            None if segment.index_entries == 0 => HEADER_BYTES as u64,
            // A damaged index only delays the next entry.
            None => segment.end,
        };
        Ok(OpenSegment { file, records: Vec::new(), index: Vec::new(), indexed_to })
    }

    /// Writes all buffered records and index entries.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let (Some(open), Some(segment)) = (self.open.as_mut(), self.segments.last()) else {
            return Ok(());
        };
        let start = segment.end - open.records.len() as u64;
        open.file.write_all_at(&open.records, start)?;
        open.records.clear();
        if !open.index.is_empty() {
            let path = self.layout.sparse_index(self.topic, segment.first);
            let index = self.layout.fs().open(&path, Access::CreateOrWrite)?;
            let entries = u32::try_from(open.index.len() / ENTRY_BYTES).unwrap_or(u32::MAX);
            let first = segment.index_entries - entries;
            if first == 0 {
                index.write_all_at(&file_header::encode(SPARSE_INDEX, segment.first.0), 0)?;
                self.dirty.push(self.layout.topic(self.topic));
            }
            index.write_all_at(&open.index, sparse_index::entry_offset(first))?;
            open.index.clear();
            if self.dirty.last() != Some(&path) {
                self.dirty.push(path);
            }
        }
        Ok(())
    }
}
