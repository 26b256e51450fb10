//! A segment and its sparse index, open for reading.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use prombus_proto::{Seq, Timestamp, Topic};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use crate::ReadBudget;
use crate::disk::file_header::SPARSE_INDEX;
use crate::disk::read::topic_view::{Content, Segment};
use crate::disk::record::RecordSeed;
use crate::disk::record::walk::{ReadAt, RecordRange, RecordWalk, Walked};
use crate::disk::segment::adopted_wal;
use crate::disk::segment::sparse_index::{self, IndexEntry};
use crate::disk::shared::Shared;
use crate::disk::wal::scan::PIECE_BYTES;

/// The most that is read from a file at a time.
pub(crate) const MAX_CHUNK_BYTES: usize = 1 << 20;
/// What lies before the wanted event since the last entry of the index of records.
pub(crate) const LEAD_BYTES: usize = 4096;
const _: () = assert!(LEAD_BYTES as u64 >= sparse_index::INTERVAL_BYTES);

/// A segment and its index, open for reading.
pub(crate) struct SegmentReader<'a> {
    shared: &'a Shared,
    pub(crate) path: std::path::PathBuf,
    index_path: std::path::PathBuf,
    file: Arc<File>,
    /// Nothing where the segment is too small for one, or where it cannot be opened.
    index: Option<Arc<File>>,
    topic: &'a Topic,
    seed: RecordSeed,
    segment: &'a Segment,
    /// Where the topic's rows are in the frames of a kept log, by their heads: for when the index cannot tell.
    rows_by_heads: OnceLock<Vec<RecordRange>>,
}

impl<'a> SegmentReader<'a> {
    pub(crate) fn open(
        shared: &'a Shared,
        topic: &'a Topic,
        seed: RecordSeed,
        segment: &'a Segment,
    ) -> io::Result<Self> {
        let path = shared.layout.segment(topic, segment.first);
        let index_path = shared.layout.sparse_index(topic, segment.first);
        let tell = |path: &Path, detail| shared.report_rebuilt(path, detail);
        let file = shared.files.open(&path, segment.file_kind(), |detail| tell(&path, detail))?;
        let index = if segment.index_entries == 0 {
            None
        } else {
            match shared.files.open(&index_path, SPARSE_INDEX, |detail| {
                tell(&index_path, detail);
            }) {
                Ok(index) => Some(index),
                Err(error) => {
                    shared.report_rebuilt(&index_path, error.to_string());
                    None
                }
            }
        };
        let rows_by_heads = OnceLock::new();
        Ok(Self { shared, path, index_path, file, index, topic, seed, segment, rows_by_heads })
    }

    fn beginning(&self) -> IndexEntry {
        IndexEntry {
            seq: self.segment.first,
            offset: self.segment.first_record(),
            latest_ts_before: Timestamp(0),
            newest_id_before: 0,
        }
    }

    /// The last indexed event for which `is_before` holds; the first event where none does, or
    /// where the index cannot be used.
    pub(crate) fn last_entry_before(&self, is_before: impl Fn(&IndexEntry) -> bool) -> IndexEntry {
        let found = self.index.as_ref().map_or(Ok(None), |index| {
            sparse_index::last_before(index, self.segment.index_entries, is_before)
        });
        match found {
            Ok(entry) => entry.unwrap_or_else(|| self.beginning()),
            Err(detail) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                self.beginning()
            }
        }
    }

    /// Where to go on behind damage at `offset`.
    fn resume_behind(&self, offset: u64) -> Option<(u64, Seq)> {
        let index = self.index.as_ref()?;
        match sparse_index::first_behind(index, self.segment.index_entries, offset) {
            Ok(entry) => entry.map(|entry| (entry.offset, entry.seq)),
            Err(detail) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                None
            }
        }
    }

    /// Goes through the segment from `start` on, which reads `chunk` bytes at a time.
    pub(crate) fn walk(&self, start: IndexEntry, chunk: usize) -> SegmentWalk<'_, impl ReadAt> {
        let all = RecordRange {
            seed: self.seed,
            start: start.offset,
            end: self.segment.end,
            first: start.seq,
            last: self.segment.last,
        };
        let row = match self.segment.content {
            Content::Records => all,
            Content::Frames { .. } => self.row_from(start.seq).unwrap_or(all),
        };
        let read_at = |offset, bytes| read_what_is_there(&self.file, offset, bytes);
        let walk = RecordWalk::new(row, chunk, read_at).reading_ahead_to(self.segment.end);
        SegmentWalk { reader: self, walk }
    }

    /// The row of records that `seq` is in; one that is in none belongs to the next.
    fn row_from(&self, seq: Seq) -> Option<RecordRange> {
        if self.segment.content == Content::Records || seq > self.segment.last {
            return None;
        }
        let by_index = self.index.as_ref().map(|index| {
            sparse_index::row_of(index, self.segment.index_entries, seq).map(|row| {
                let (this, next) = row?;
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
            Some(Ok(row)) => row,
            Some(Err(detail)) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                self.row_by_heads(seq)
            }
            None => self.row_by_heads(seq),
        }
    }

    fn row_by_heads(&self, seq: Seq) -> Option<RecordRange> {
        let rows = self.rows_by_heads.get_or_init(|| {
            adopted_wal::rows_of(&self.file, self.segment.end, self.topic, self.seed)
        });
        rows.get(rows.partition_point(|row| row.last < seq)).copied()
    }

    /// What an event of the segment takes; never nothing.
    pub(crate) fn average_bytes(&self) -> usize {
        let events = self.segment.last.0 - self.segment.first.0 + 1;
        let average = self.segment.bytes() / events.max(1) + 1;
        usize::try_from(average).unwrap_or(MAX_CHUNK_BYTES)
    }

    /// How much to read at a time: about what the budget can use.
    pub(crate) fn chunk_for(&self, budget: ReadBudget) -> usize {
        let by_events = budget.events.saturating_mul(self.average_bytes());
        let lead = match self.segment.content {
            Content::Records => LEAD_BYTES,
            Content::Frames { .. } => PIECE_BYTES,
        };
        by_events.min(budget.bytes).saturating_add(lead).min(MAX_CHUNK_BYTES)
    }
}

/// Goes through the records of a segment, over all that lies between them.
pub(crate) struct SegmentWalk<'a, R> {
    reader: &'a SegmentReader<'a>,
    walk: RecordWalk<R>,
}

impl<R: ReadAt> SegmentWalk<'_, R> {
    /// The next event or damage; nothing behind the last.
    pub(crate) fn next(&mut self) -> io::Result<Option<Walked>> {
        loop {
            if let Some(walked) = self.walk.next(|offset| self.reader.resume_behind(offset))? {
                return Ok(Some(walked));
            }
            match self.reader.row_from(self.walk.expected()) {
                Some(row) => self.walk.go_on_with(row),
                None => return Ok(None),
            }
        }
    }
}

/// `bytes` bytes at `offset`; of a file that was cut off, what is left.
pub(crate) fn read_what_is_there(file: &File, offset: u64, bytes: usize) -> io::Result<Bytes> {
    let mut buffer = Vec::with_capacity(bytes);
    while buffer.len() < bytes {
        // Into room that is not cleared before: clearing took as long as checking what was read.
        let next = offset + buffer.len() as u64;
        match pread(file, spare_capacity(&mut buffer), next) {
            Ok(0) if buffer.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The allocator may have given more room than was asked for.
    buffer.truncate(bytes);
    Ok(Bytes::from(buffer))
}
