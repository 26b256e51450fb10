//! A topic's segments: files of records, each with a sparse index beside it, or parts of a pack.

pub(crate) mod adopted_wal;
pub(crate) mod monotonic_ids;
pub(crate) mod pack;
pub(crate) mod reader;
pub(crate) mod record_block;
pub(crate) mod sparse_index;
pub(crate) mod writer;

use prombus_proto::{Seq, Timestamp};

use self::record_block::RecordBlock;
use super::record::Record;
use super::storage::file_header::{FileKind, HEADER_BYTES, PACK, SEGMENT, WAL};

/// A segment as of the last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// The file offset at which the last record ends.
    pub(crate) end: u64,
    pub(crate) latest_ts: Timestamp,
    /// When its newest event was stored, by a clock that may have been wrong.
    pub(crate) arrived: Timestamp,
    /// The newest monotonic id before this segment, trimmed events included; 0 if it is not known,
    /// for the first segment of a catalog that did not record it.
    pub(crate) newest_id_before: u128,
    /// The newest monotonic id in this segment and those before it.
    pub(crate) newest_id: u128,
    pub(crate) index_entries: u32,
    pub(crate) created_at: Timestamp,
    pub(crate) content: SegmentContent,
}

/// What a segment file consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentContent {
    /// Records of the topic, directly after the header.
    Records,
    /// The frames of an adopted WAL file. Each entry of the sparse index is the start of an extent
    /// of the topic's records. The first extent starts at `first_record`; together they have
    /// `record_bytes`.
    Frames { first_record: u64, record_bytes: u64 },
    /// Records of the topic, from `offset` on in the pack with this number.
    Packed { pack: u64, offset: u64 },
}

impl Segment {
    /// A segment without records, whose first record will be at the offset `start`.
    pub(crate) fn empty(
        first: Seq,
        content: SegmentContent,
        start: u64,
        newest_id_before: u128,
        created_at: Timestamp,
    ) -> Self {
        Self {
            first,
            last: first.previous(),
            end: start,
            latest_ts: Timestamp(0),
            arrived: Timestamp(0),
            newest_id_before,
            newest_id: newest_id_before,
            index_entries: 0,
            created_at,
            content,
        }
    }

    /// Adds `record`, which is part of `block`, at its end. All of the block was stored at once, so
    /// one limit tells which of its ids are monotonic.
    pub(crate) fn add(&mut self, block: &RecordBlock, record: &Record<'_>, now: Timestamp) {
        self.end += record.total_bytes() as u64;
        self.last = record.seq;
        self.latest_ts = self.latest_ts.max(record.ts);
        self.add_arrival(block.arrived, now);
        // A newer one was too far ahead of the clock to be monotonic.
        let monotonic = record.time_ordered_id().filter(|id| *id <= block.newest_id);
        self.newest_id = self.newest_id.max(monotonic.unwrap_or(0));
    }

    /// Adds all records of `copied` at its end.
    pub(crate) fn add_segment(&mut self, copied: &Segment, now: Timestamp) {
        self.end += copied.bytes();
        self.last = copied.last;
        self.latest_ts = self.latest_ts.max(copied.latest_ts);
        self.add_arrival(copied.arrived, now);
        self.newest_id = self.newest_id.max(copied.newest_id);
    }

    /// The bytes of the topic's records.
    pub(crate) fn bytes(&self) -> u64 {
        match self.content {
            SegmentContent::Records => self.end,
            SegmentContent::Frames { record_bytes, .. } => record_bytes,
            SegmentContent::Packed { offset, .. } => self.end - offset,
        }
    }

    /// The file offset of the first record.
    pub(crate) fn first_record(&self) -> u64 {
        match self.content {
            SegmentContent::Records => HEADER_BYTES as u64,
            SegmentContent::Frames { first_record, .. } => first_record,
            SegmentContent::Packed { offset, .. } => offset,
        }
    }

    /// The pack that contains it, if any.
    pub(crate) fn pack(&self) -> Option<u64> {
        match self.content {
            SegmentContent::Packed { pack, .. } => Some(pack),
            SegmentContent::Records | SegmentContent::Frames { .. } => None,
        }
    }

    /// Records that it has an event with this arrival. One before the arrivals so far means that the
    /// clock was set back: the event was stored between those and `now`, the time of the checkpoint.
    pub(crate) fn add_arrival(&mut self, arrived: Timestamp, now: Timestamp) {
        self.arrived = if arrived < self.arrived { self.arrived.max(now) } else { arrived };
    }

    /// Returns `true` if its age at the time `now` is at most `max_age_ms`. A segment from the future is
    /// not: the clock was wrong, and the arrivals of later events must not be mixed with its own.
    pub(crate) fn is_young(&self, now: Timestamp, max_age_ms: u64) -> bool {
        let is_dated = self.created_at <= now && self.arrived <= now;
        is_dated && now.0 - self.created_at.0 <= max_age_ms
    }

    pub(crate) fn file_kind(&self) -> FileKind {
        match self.content {
            SegmentContent::Records => SEGMENT,
            SegmentContent::Frames { .. } => WAL,
            SegmentContent::Packed { .. } => PACK,
        }
    }
}
