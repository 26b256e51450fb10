//! The staged events of one topic.

use std::collections::HashMap;

use prombus_proto::{EncodedEvent, EventId, Seq, Timestamp, Topic};

use crate::disk::ids::ahead::{IdLimit, NewestIds};
use crate::disk::ids::recent::{MonotonicId, RecentIds, find_monotonic};
use crate::disk::ids::{IdEntry, IdSeed, TopicOrdinal};
use crate::disk::read::topic_view::TopicView;
use crate::disk::record::{self, RecordSeed, SuffixChecksum};
use crate::disk::storage::checksum::BlockChecksum;
use crate::disk::wal::frame::{Deletion, TopicSection};
use crate::disk::wal::{EXTENT_BYTES, FrameExtent};

/// What one batch appends to one topic. The first fields are copied from the topic's view, so that
/// staging an event touches this struct alone.
#[derive(Debug)]
pub(super) struct StagedTopic {
    pub(super) name: Topic,
    pub(super) ordinal: TopicOrdinal,
    pub(super) record_seed: RecordSeed,
    pub(super) id_seed: IdSeed,
    pub(super) first: Seq,
    /// The next position without the staged events.
    visible_next: Seq,
    pub(super) next: Seq,
    pub(super) newest_ids: NewestIds,
    id_limit: IdLimit,
    /// The revision of the newest retention rule, staged ones included.
    pub(super) rule: u64,
    /// Whether it was deleted and has no event after that, staged ones included.
    pub(super) is_deleted: bool,
    /// Whether it is deleted without the staged events.
    was_deleted: bool,
    pub(super) records: Vec<u8>,
    records_checksum: BlockChecksum,
    pub(super) count: u32,
    pub(super) ids: StagedIds,
    /// Their offsets count from the start of `records`.
    pub(super) extents: Vec<FrameExtent>,
    latest_ts: Timestamp,
}

/// The ids of the staged events of one topic.
#[derive(Debug, Default)]
pub(super) struct StagedIds {
    /// UUIDv7 that were newer than every id of the topic before them and not far ahead of the clock.
    monotonic: Vec<MonotonicId>,
    others: HashMap<EventId, Seq>,
}

impl StagedIds {
    pub(super) fn find(&self, id: &EventId) -> Option<Seq> {
        let monotonic = id.time_ordered().and_then(|id| find_monotonic(&self.monotonic, id));
        monotonic.or_else(|| self.others.get(id).copied())
    }

    pub(super) fn add_to(&self, table: &mut RecentIds, topic: TopicOrdinal, seed: IdSeed) {
        table.add_monotonic(topic, &self.monotonic);
        for (id, seq) in &self.others {
            let entry = IdEntry { hash: seed.hash(id), topic, seq: *seq };
            table.insert(entry, id.time_ordered());
        }
    }
}

impl StagedTopic {
    pub(super) fn new(name: &Topic, view: &TopicView, id_limit: IdLimit, records: Vec<u8>) -> Self {
        Self {
            name: name.clone(),
            ordinal: view.ordinal,
            record_seed: view.record_seed,
            id_seed: view.id_seed,
            first: view.first,
            visible_next: view.next,
            next: view.next,
            newest_ids: view.newest_ids,
            id_limit,
            rule: view.rule,
            is_deleted: view.is_deleted,
            was_deleted: view.is_deleted,
            records,
            records_checksum: BlockChecksum::default(),
            count: 0,
            ids: StagedIds::default(),
            extents: Vec::new(),
            latest_ts: Timestamp(0),
        }
    }

    pub(super) fn append(&mut self, event: &EncodedEvent, suffix_checksum: SuffixChecksum) -> Seq {
        let seq = self.next;
        let start = self.records.len();
        record::append(&mut self.records, self.record_seed, seq, event, suffix_checksum);
        self.records_checksum.advance(&self.records);
        let bytes = u32::try_from(self.records.len() - start).expect("a record is below 4 GiB");
        let newest_id_before = self.newest_ids.monotonic;
        match event.id().time_ordered() {
            Some(id) if self.newest_ids.add(id, self.id_limit) => {
                self.ids.monotonic.push(MonotonicId::new(id, seq));
            }
            _ => {
                self.ids.others.insert(event.id().clone(), seq);
            }
        }
        let newest_id = self.newest_ids.monotonic;
        match self.extents.last_mut() {
            Some(extent) if (extent.bytes as usize) < EXTENT_BYTES => {
                extent.bytes += bytes;
                extent.count += 1;
                extent.latest_ts = extent.latest_ts.max(event.ts());
                extent.newest_id = newest_id;
            }
            _ => self.extents.push(FrameExtent {
                section: 0,
                offset: start as u64,
                bytes,
                first: seq,
                count: 1,
                latest_ts: event.ts(),
                newest_id_before,
                newest_id,
            }),
        }
        self.count += 1;
        self.is_deleted = false;
        self.latest_ts = self.latest_ts.max(event.ts());
        self.next = seq.next();
        seq
    }

    /// The deletion before the first of the staged events, which the frame repeats: the catalog may not have
    /// the topic any more when the frame is replayed.
    pub(super) fn earlier_deletion(&self) -> Option<Deletion> {
        let below = self.visible_next;
        self.was_deleted.then(|| Deletion { topic: self.name.clone(), below })
    }

    pub(super) fn section(&self) -> TopicSection {
        TopicSection {
            topic: self.name.clone(),
            first: self.visible_next,
            count: self.count,
            bytes: u32::try_from(self.records.len()).expect("a frame is below 4 GiB"),
            checksum: self.records_checksum.finish(&self.records),
            latest_ts: self.latest_ts,
        }
    }
}
