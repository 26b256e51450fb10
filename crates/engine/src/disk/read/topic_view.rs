//! What readers see of one topic: where its events are.

use std::collections::VecDeque;
use std::sync::Arc;

use prombus_proto::{Seq, Timestamp, Topic};

use crate::Bounds;
use crate::disk::file_header::{FileKind, HEADER_BYTES, SEGMENT, WAL};
use crate::disk::ids::{IdSeed, Ordinal};
use crate::disk::record::RecordSeed;
use crate::disk::wal::file::WalFile;

/// The events of a topic: the older ones in segments, the newer ones in the write-ahead log.
#[derive(Debug)]
pub(crate) struct TopicView {
    pub(crate) ordinal: Ordinal,
    pub(crate) record_seed: RecordSeed,
    pub(crate) id_seed: IdSeed,
    pub(crate) first: Seq,
    pub(crate) next: Seq,
    /// The newest UUIDv7 it ever had: a newer one cannot be a duplicate.
    pub(crate) newest_time_ordered: u128,
    /// The revision of the newest retention rule that was applied.
    pub(crate) rule: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) wal: VecDeque<WalPiece>,
    wal_bytes: u64,
    /// The latest time in the segments up to each one: rises, so that a time is found by halving.
    latest_ts_so_far: Vec<Timestamp>,
}

/// A segment file as of the last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// Where its last record ends.
    pub(crate) end: u64,
    pub(crate) latest_ts: Timestamp,
    /// The newest UUIDv7 in this segment and those before it.
    pub(crate) newest_id: u128,
    pub(crate) index_entries: u32,
    /// When it was begun.
    pub(crate) begun: Timestamp,
    pub(crate) content: Content,
}

/// What lies in the file of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Records of its topic, from the header on.
    Records,
    /// The frames of a log file that was kept as it is. Each entry of the index begins a row of records of
    /// the topic, the first row begins at `first_record`, and all of them have `record_bytes`.
    Frames { first_record: u64, record_bytes: u64 },
}

impl Segment {
    /// How many bytes its events take.
    pub(crate) fn bytes(&self) -> u64 {
        match self.content {
            Content::Records => self.end,
            Content::Frames { record_bytes, .. } => record_bytes,
        }
    }

    /// Where its first record begins.
    pub(crate) fn first_record(&self) -> u64 {
        match self.content {
            Content::Records => HEADER_BYTES as u64,
            Content::Frames { first_record, .. } => first_record,
        }
    }

    pub(crate) fn file_kind(&self) -> FileKind {
        match self.content {
            Content::Records => SEGMENT,
            Content::Frames { .. } => WAL,
        }
    }
}

/// Some records in a row in a file of the write-ahead log.
#[derive(Clone, Debug)]
pub(crate) struct WalPiece {
    pub(crate) file: Arc<WalFile>,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) first: Seq,
    pub(crate) count: u32,
    pub(crate) latest_ts: Timestamp,
    /// The newest UUIDv7 of all events of the topic before these.
    pub(crate) newest_id_before: u128,
}

impl WalPiece {
    pub(crate) fn last(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.count) - 1)
    }

    /// Where it ends in its file.
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }
}

impl TopicView {
    pub(crate) fn new(topic: &Topic, ordinal: Ordinal, store_seed: u64) -> Self {
        Self {
            ordinal,
            record_seed: RecordSeed::of(topic),
            id_seed: IdSeed::of(store_seed, topic),
            first: Seq::FIRST,
            next: Seq::FIRST,
            newest_time_ordered: 0,
            rule: 0,
            segments: Vec::new(),
            wal: VecDeque::new(),
            wal_bytes: 0,
            latest_ts_so_far: Vec::new(),
        }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let in_segments: u64 = self.segments.iter().map(Segment::bytes).sum();
        Bounds { first: self.first, next: self.next, bytes: in_segments + self.wal_bytes }
    }

    /// Shows events that are in the write-ahead log.
    pub(crate) fn push_piece(&mut self, piece: WalPiece) {
        self.wal_bytes += u64::from(piece.bytes);
        self.wal.push_back(piece);
    }

    fn drop_pieces_while(&mut self, gone: impl Fn(&WalPiece) -> bool) {
        while let Some(piece) = self.wal.pop_front_if(|piece| gone(piece)) {
            self.wal_bytes -= u64::from(piece.bytes);
        }
    }

    /// Forgets events below `below`.
    pub(crate) fn trim(&mut self, below: Seq) {
        self.first = self.first.max(below.min(self.next));
        let first = self.first;
        self.drop_pieces_while(|piece| piece.last() < first);
        if self.segments.first().is_some_and(|segment| segment.last < first) {
            self.set_segments(
                self.segments.iter().filter(|segment| segment.last >= first).copied().collect(),
            );
        }
    }

    /// Shows what a checkpoint has moved: segments take over from the log files up to `wal_number`.
    pub(crate) fn take_over(&mut self, segments: &[Segment], wal_number: u64) {
        let first = self.first;
        self.set_segments(
            segments.iter().filter(|segment| segment.last >= first).copied().collect(),
        );
        self.drop_pieces_while(|piece| piece.file.number <= wal_number);
    }

    pub(crate) fn set_segments(&mut self, segments: Vec<Segment>) {
        self.latest_ts_so_far = segments
            .iter()
            .scan(Timestamp(0), |latest, segment| {
                *latest = (*latest).max(segment.latest_ts);
                Some(*latest)
            })
            .collect();
        self.segments = segments;
    }

    /// Which segment `seq` is in, if it is in one; a position between two belongs to the later.
    pub(crate) fn segment_of(&self, seq: Seq) -> Option<usize> {
        let index = self.segments.partition_point(|segment| segment.last < seq);
        (index < self.segments.len()).then_some(index)
    }

    /// The segment that `id` is in, if it was newer than all ids before it when it came.
    pub(crate) fn segment_of_rising(&self, id: u128) -> Option<Segment> {
        let index = self.segments.partition_point(|segment| segment.newest_id < id);
        self.segments.get(index).copied()
    }

    /// Which piece of the log `seq` is in, if it is in one; a position between two belongs to the
    /// later.
    pub(crate) fn piece_of(&self, seq: Seq) -> Option<usize> {
        let index = self.wal.partition_point(|piece| piece.last() < seq);
        (index < self.wal.len()).then_some(index)
    }

    /// Where the row of positions that are nowhere begins, of which `seq` is one.
    pub(crate) fn first_missing_before(&self, seq: Seq) -> Seq {
        let segments = &self.segments[..self.segment_of(seq).unwrap_or(self.segments.len())];
        let pieces = self.piece_of(seq).unwrap_or(self.wal.len());
        let in_segments = segments.last().map_or(Seq::ZERO, |segment| segment.last);
        let in_wal = self.wal.range(..pieces).next_back().map_or(Seq::ZERO, WalPiece::last);
        in_segments.max(in_wal).next().max(self.first)
    }

    /// The first segment that has an event of `ts` or later.
    pub(crate) fn segment_reaching(&self, ts: Timestamp) -> Option<usize> {
        let index = self.latest_ts_so_far.partition_point(|latest| *latest < ts);
        (index < self.segments.len()).then_some(index)
    }
}
