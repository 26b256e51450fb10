//! Appends records from the write-ahead log to a topic's segments.

use std::io;
use std::path::PathBuf;

use prombus_proto::{Seq, Timestamp, Topic};

use super::sparse_index::{self, ENTRY_BYTES, INTERVAL_BYTES, IndexEntry};
use super::{Segment, SegmentContent};
use crate::disk::options::DiskOptions;
use crate::disk::record::walk::{RecordRange, RecordWalk, WalkItem};
use crate::disk::record::{self, RecordFault, RecordSeed};
use crate::disk::storage::file_header::{self, HEADER_BYTES, SEGMENT, SPARSE_INDEX};
use crate::disk::storage::file_system::{Access, File};
use crate::disk::storage::layout::Layout;
use crate::disk::wal::WalExtent;

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

/// Events that cannot be read back from the WAL file, which therefore has to go to quarantine.
#[derive(Debug)]
pub(crate) struct DamagedRange {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
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
        Self { layout, options, topic, seed, segments, open: None, now, dirty: Vec::new() }
    }

    /// Appends the records of `extent`, whose content is `bytes`. Skips events that the segments
    /// already have. Returns the damaged events.
    pub(crate) fn append(
        &mut self,
        extent: &WalExtent,
        bytes: &[u8],
    ) -> io::Result<Vec<DamagedRange>> {
        let mut damaged = Vec::new();
        let mut at = 0;
        let mut expected = extent.first;
        while expected <= extent.last() {
            let found = match record::decode(self.seed, &bytes[at..]) {
                Ok(found) => found,
                Err(fault) => {
                    let (first, next) =
                        (expected, next_record(self.seed, bytes, at, expected, fault));
                    (at, expected) = next.unwrap_or((bytes.len(), extent.last().next()));
                    damaged.push(DamagedRange { first, last: expected.previous() });
                    continue;
                }
            };
            let length = found.total_bytes();
            if self.segments.last().is_none_or(|segment| segment.last < found.seq) {
                let record = &bytes[at..at + length];
                self.append_record(found.seq, found.ts, found.time_ordered_id(), record)?;
            }
            at += length;
            expected = expected.next();
        }
        Ok(damaged)
    }

    fn append_record(
        &mut self,
        seq: Seq,
        ts: Timestamp,
        time_ordered: Option<u128>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let full = self.segments.last().is_none_or(|segment| {
            let age = self.now.0.saturating_sub(segment.created_at.0);
            segment.content != SegmentContent::Records
                || segment.end + bytes.len() as u64 > self.options.segment_bytes
                || age > self.options.segment_age_ms
        });
        if full || self.open.is_none() && !self.last_is_intact()? {
            self.flush()?;
            self.open = None;
            let newest_id = self.segments.last().map_or(0, |segment| segment.newest_id);
            self.segments.push(Segment {
                first: seq,
                last: seq.previous(),
                end: HEADER_BYTES as u64,
                latest_ts: Timestamp(0),
                newest_id,
                index_entries: 0,
                created_at: self.now,
                content: SegmentContent::Records,
            });
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
        open.records.extend_from_slice(bytes);
        segment.end += bytes.len() as u64;
        segment.last = seq;
        segment.latest_ts = segment.latest_ts.max(ts);
        segment.newest_id = segment.newest_id.max(time_ordered.unwrap_or(0));
        if open.records.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
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

/// Returns the offset and `seq` of the record after a damaged one, if its length is right.
fn next_record(
    seed: RecordSeed,
    bytes: &[u8],
    at: usize,
    damaged: Seq,
    fault: RecordFault,
) -> Option<(usize, Seq)> {
    let RecordFault::Damaged { plausible_bytes: Some(length) } = fault else { return None };
    let next = record::decode(seed, bytes.get(at + length..)?).ok()?;
    (next.seq == damaged.next()).then_some((at + length, next.seq))
}
