//! The view of one topic: where its events are.

use std::collections::VecDeque;

use prombus_proto::{Seq, Timestamp, Topic};

use crate::Bounds;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::{IdSeed, TopicOrdinal};
use crate::disk::record::RecordSeed;
use crate::disk::segment::Segment;
use crate::disk::wal::WalExtent;

/// The events of a topic: older ones in segments, newer ones in the write-ahead log.
#[derive(Debug)]
pub(crate) struct TopicView {
    pub(crate) ordinal: TopicOrdinal,
    pub(crate) record_seed: RecordSeed,
    pub(crate) id_seed: IdSeed,
    pub(crate) first: Seq,
    pub(crate) next: Seq,
    pub(crate) newest_ids: NewestIds,
    /// The revision of the newest retention rule that was applied.
    pub(crate) rule: u64,
    /// Whether it was deleted and has had no event since. Its numbering goes on until the view drops it.
    pub(crate) is_deleted: bool,
    /// The newest WAL file that has a change of it.
    pub(crate) changed_in: u64,
    /// Whether that rule limits the age of events. Not stored: rules are applied again after a start.
    pub(crate) has_age_limit: bool,
    pub(crate) segments: Vec<Segment>,
    pub(crate) wal: VecDeque<WalExtent>,
    wal_bytes: u64,
    /// The latest arrival of the trimmed segments and extents.
    pub(crate) trimmed_arrival: Timestamp,
    /// Set if no event up to this position has an arrival that bounds the age of the last ones: the
    /// time at which retention found out.
    pub(crate) undated_tail: Option<(Seq, Timestamp)>,
    /// The latest time in all segments up to each one; non-decreasing, for binary search.
    latest_ts_so_far: Vec<Timestamp>,
}

impl TopicView {
    pub(crate) fn new(topic: &Topic, ordinal: TopicOrdinal, store_seed: u64) -> Self {
        Self {
            ordinal,
            record_seed: RecordSeed::of(topic),
            id_seed: IdSeed::of(store_seed, topic),
            first: Seq::FIRST,
            next: Seq::FIRST,
            newest_ids: NewestIds::default(),
            rule: 0,
            is_deleted: false,
            changed_in: 0,
            has_age_limit: false,
            segments: Vec::new(),
            wal: VecDeque::new(),
            wal_bytes: 0,
            trimmed_arrival: Timestamp(0),
            undated_tail: None,
            latest_ts_so_far: Vec::new(),
        }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        if self.is_deleted {
            return Bounds::EMPTY;
        }
        let in_segments: u64 = self.segments.iter().map(Segment::bytes).sum();
        Bounds { first: self.first, next: self.next, bytes: in_segments + self.wal_bytes }
    }

    pub(crate) fn push_wal_extent(&mut self, extent: WalExtent) {
        self.wal_bytes += u64::from(extent.bytes);
        self.wal.push_back(extent);
    }

    fn drop_extents_while(&mut self, gone: impl Fn(&WalExtent) -> bool) {
        while let Some(extent) = self.wal.pop_front_if(|extent| gone(extent)) {
            self.wal_bytes -= u64::from(extent.bytes);
        }
    }

    /// Removes the events below `below`.
    pub(crate) fn trim(&mut self, below: Seq) {
        self.first = self.first.max(below.min(self.next));
        let first = self.first;
        let segments = self.segments.iter().map(|segment| (segment.last, segment.arrived));
        let extents = self.wal.iter().map(|extent| (extent.last(), extent.arrived));
        let trimmed = segments.chain(extents).take_while(|(last, _)| *last < first);
        let arrivals = trimmed.map(|(_, arrived)| arrived);
        self.trimmed_arrival = arrivals.max().unwrap_or_default().max(self.trimmed_arrival);
        self.drop_extents_while(|extent| extent.last() < first);
        if self.segments.first().is_some_and(|segment| segment.last < first) {
            self.set_segments(
                self.segments.iter().filter(|segment| segment.last >= first).copied().collect(),
            );
        }
    }

    /// Deletes everything below `below`. Events from there on belong to the topic that follows.
    pub(crate) fn delete(&mut self, below: Seq) {
        self.next = self.next.max(below);
        self.trim(below);
        self.rule = 0;
        self.has_age_limit = false;
        self.trimmed_arrival = Timestamp(0);
        self.undated_tail = None;
        self.is_deleted = self.first == self.next;
    }

    /// Replaces the extents of the WAL files up to `wal_number` by the segments of a checkpoint.
    pub(crate) fn apply_checkpoint(&mut self, segments: &[Segment], wal_number: u64) {
        let first = self.first;
        self.set_segments(
            segments.iter().filter(|segment| segment.last >= first).copied().collect(),
        );
        self.drop_extents_while(|extent| extent.file.number <= wal_number);
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

    /// Returns the index of the segment that `seq` is in, or of the next one.
    pub(crate) fn segment_of(&self, seq: Seq) -> Option<usize> {
        let index = self.segments.partition_point(|segment| segment.last < seq);
        (index < self.segments.len()).then_some(index)
    }

    /// Returns the only segment that can contain `id` as a monotonic id, one that was newer than
    /// every id before it. There is none if an id before the segments is newer.
    pub(crate) fn segment_of_monotonic_id(&self, id: u128) -> Option<Segment> {
        let index = self.segments.partition_point(|segment| segment.newest_id < id);
        self.segments.get(index).copied().filter(|segment| segment.newest_id_before < id)
    }

    /// Returns the index of the WAL extent that `seq` is in, or of the next one.
    pub(crate) fn wal_extent_of(&self, seq: Seq) -> Option<usize> {
        let index = self.wal.partition_point(|extent| extent.last() < seq);
        (index < self.wal.len()).then_some(index)
    }

    /// Returns the first of the consecutive missing positions that `seq` belongs to.
    pub(crate) fn first_missing_before(&self, seq: Seq) -> Seq {
        let segments = &self.segments[..self.segment_of(seq).unwrap_or(self.segments.len())];
        let extents = self.wal_extent_of(seq).unwrap_or(self.wal.len());
        let in_segments = segments.last().map_or(Seq::ZERO, |segment| segment.last);
        let in_wal = self.wal.range(..extents).next_back().map_or(Seq::ZERO, WalExtent::last);
        in_segments.max(in_wal).next().max(self.first)
    }

    /// Returns the index of the first segment that has an event at or after `ts`.
    pub(crate) fn segment_reaching(&self, ts: Timestamp) -> Option<usize> {
        let index = self.latest_ts_so_far.partition_point(|latest| *latest < ts);
        (index < self.segments.len()).then_some(index)
    }
}
