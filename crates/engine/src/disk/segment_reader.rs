//! A segment and its sparse index, open for reading.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use prombus_proto::{Seq, Timestamp, Topic};
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use super::file_header::{HEADER_BYTES, SEGMENT, SPARSE_INDEX};
use super::record::RecordSeed;
use super::record_walk::{RecordRange, RecordWalk};
use super::shared::Shared;
use super::sparse_index::{self, IndexEntry};
use super::topic_view::Segment;
use crate::ReadBudget;

/// The most that is read from a file at a time.
pub(super) const MAX_CHUNK_BYTES: usize = 1 << 20;
/// What lies before the wanted event since the last entry of the index.
pub(super) const LEAD_BYTES: usize = 4096;
const _: () = assert!(LEAD_BYTES as u64 >= sparse_index::INTERVAL_BYTES);

/// A segment and its index, open for reading.
pub(super) struct SegmentReader<'a> {
    shared: &'a Shared,
    pub(super) path: std::path::PathBuf,
    index_path: std::path::PathBuf,
    file: Arc<File>,
    /// Nothing where the segment is too small for one, or where it cannot be opened.
    index: Option<Arc<File>>,
    seed: RecordSeed,
    segment: &'a Segment,
}

impl<'a> SegmentReader<'a> {
    pub(super) fn open(
        shared: &'a Shared,
        topic: &Topic,
        seed: RecordSeed,
        segment: &'a Segment,
    ) -> io::Result<Self> {
        let path = shared.layout.segment(topic, segment.first);
        let index_path = shared.layout.sparse_index(topic, segment.first);
        let tell = |path: &Path, detail| shared.report_rebuilt(path, detail);
        let file = shared.files.open(&path, SEGMENT, |detail| tell(&path, detail))?;
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
        Ok(Self { shared, path, index_path, file, index, seed, segment })
    }

    fn beginning(&self) -> IndexEntry {
        IndexEntry {
            seq: self.segment.first,
            offset: HEADER_BYTES as u64,
            latest_ts_before: Timestamp(0),
            newest_id_before: 0,
        }
    }

    /// The last indexed event for which `is_before` holds; the first event where none does, or
    /// where the index cannot be used.
    pub(super) fn last_entry_before(&self, is_before: impl Fn(&IndexEntry) -> bool) -> IndexEntry {
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
    pub(super) fn resume_behind(&self, offset: u64) -> Option<(u64, Seq)> {
        let index = self.index.as_ref()?;
        match sparse_index::first_behind(index, self.segment.index_entries, offset) {
            Ok(entry) => entry.map(|entry| (entry.offset, entry.seq)),
            Err(detail) => {
                self.shared.report_rebuilt(&self.index_path, detail);
                None
            }
        }
    }

    pub(super) fn walk(
        &self,
        start: IndexEntry,
        chunk: usize,
    ) -> RecordWalk<impl super::record_walk::ReadAt + '_> {
        let range = RecordRange {
            seed: self.seed,
            start: start.offset,
            end: self.segment.end,
            first: start.seq,
            last: self.segment.last,
        };
        RecordWalk::new(range, chunk, |offset, bytes| read_what_is_there(&self.file, offset, bytes))
    }

    /// What an event of the segment takes; never nothing.
    pub(super) fn average_bytes(&self) -> usize {
        let events = self.segment.last.0 - self.segment.first.0 + 1;
        let average = self.segment.end / events.max(1) + 1;
        usize::try_from(average).unwrap_or(MAX_CHUNK_BYTES)
    }

    /// How much to read at a time: about what the budget can use.
    pub(super) fn chunk_for(&self, budget: ReadBudget) -> usize {
        let by_events = budget.events.saturating_mul(self.average_bytes());
        by_events.min(budget.bytes).saturating_add(LEAD_BYTES).min(MAX_CHUNK_BYTES)
    }
}

/// `bytes` bytes at `offset`; of a file that was cut off, what is left.
pub(super) fn read_what_is_there(file: &File, offset: u64, bytes: usize) -> io::Result<Bytes> {
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
