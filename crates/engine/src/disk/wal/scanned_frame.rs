//! Decodes a frame of the write-ahead log, as far as it can be read.

use bytes::Bytes;
use prombus_proto::{EventId, Seq, Timestamp, Topic};

use super::frame::{FrameEnd, FrameHeader, TopicSection};
use super::{EXTENT_BYTES, FrameExtent};
use crate::disk::ids::ahead::IdLimit;
use crate::disk::ids::recent::MonotonicId;
use crate::disk::record::{self, Record, RecordFault, RecordSeed};
use crate::disk::state::change::StateChange;
use crate::disk::storage::checksum::{BlockChecksum, checksum};

/// The readable part of a frame.
#[derive(Debug)]
pub(crate) struct ScannedFrame {
    pub(crate) header: FrameHeader,
    pub(crate) extents: Vec<FrameExtent>,
    /// The ids of each section.
    pub(crate) ids: Vec<ScannedIds>,
    pub(crate) damaged_events: Vec<DamagedEvents>,
    /// `None` if the state changes have a checksum mismatch.
    pub(crate) state: Option<Vec<StateChange>>,
    /// Whether the header or the footer is damaged.
    pub(crate) lost_an_end: bool,
}

/// The ids of a section.
#[derive(Debug, Default)]
pub(crate) struct ScannedIds {
    /// All UUIDv7.
    pub(crate) time_ordered: Vec<MonotonicId>,
    /// Whether each UUIDv7 is newer than the one before it.
    pub(crate) is_monotonic: bool,
    pub(crate) others: Vec<(EventId, Seq)>,
}

impl ScannedIds {
    fn add(&mut self, record: &Record<'_>) {
        match record.time_ordered_id() {
            Some(id) => {
                self.is_monotonic &= self.time_ordered.last().is_none_or(|last| last.id() < id);
                self.time_ordered.push(MonotonicId::new(id, record.seq));
            }
            None => self.others.extend(record.id().map(|id| (id, record.seq))),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DamagedEvents {
    pub(crate) topic: Topic,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
}

/// The most ids to allocate for before any was read: the count may be wrong.
const MAX_IDS_RESERVED: u32 = 100_000;

impl ScannedFrame {
    /// Decodes `frame`, which starts at the file offset `base`.
    pub(super) fn decode(header: FrameHeader, frame: &[u8], base: u64) -> Self {
        let ends = header.header_bytes();
        let lost_an_end = header.encode(FrameEnd::Header) != frame[..ends]
            || header.encode(FrameEnd::Footer) != frame[frame.len() - ends..];
        let mut scanned = Self {
            extents: Vec::with_capacity(header.sections.len()),
            ids: Vec::new(),
            damaged_events: Vec::new(),
            state: None,
            lost_an_end,
            header,
        };
        let mut offset = ends;
        let sections = std::mem::take(&mut scanned.header.sections);
        for (index, section) in sections.iter().enumerate() {
            let records = &frame[offset..offset + section.bytes as usize];
            scanned.scan_section(index, section, records, base + offset as u64);
            offset += section.bytes as usize;
        }
        scanned.header.sections = sections;
        let state = &frame[offset..offset + scanned.header.state_bytes as usize];
        scanned.state = state_changes(state, scanned.header.state_checksum);
        scanned
    }

    pub(super) fn is_intact(&self) -> bool {
        self.damaged_events.is_empty() && self.state.is_some() && !self.lost_an_end
    }

    fn scan_section(&mut self, index: usize, section: &TopicSection, records: &[u8], offset: u64) {
        let seed = RecordSeed::of(&section.topic);
        let is_intact = BlockChecksum::default().finish(records) == section.checksum;
        let decode = |bytes| match is_intact {
            true => record::decode_trusted(bytes),
            false => record::decode(seed, bytes),
        };
        let mut ids = ScannedIds {
            time_ordered: Vec::with_capacity(section.count.min(MAX_IDS_RESERVED) as usize),
            is_monotonic: true,
            others: Vec::new(),
        };
        let end = section.first.plus(u64::from(section.count));
        let mut at = 0;
        let mut expected = section.first;
        let mut newest_id = 0;
        let limit = IdLimit::of_frame(self.header.arrived);
        let mut open: Option<FrameExtent> = None;
        while expected < end {
            match decode(&records[at..]) {
                Ok(record) if record.seq == expected => {
                    let extent = open.get_or_insert_with(|| FrameExtent {
                        section: index,
                        offset: offset + at as u64,
                        bytes: 0,
                        first: expected,
                        count: 0,
                        latest_ts: Timestamp(0),
                        newest_id_before: newest_id,
                        newest_id,
                    });
                    extent.add(&record);
                    let id = record.time_ordered_id().filter(|id| limit.allows(*id));
                    newest_id = newest_id.max(id.unwrap_or(0));
                    extent.newest_id = newest_id;
                    if extent.bytes as usize >= EXTENT_BYTES {
                        self.extents.extend(open.take());
                    }
                    ids.add(&record);
                    at += record.total_bytes();
                    expected = expected.next();
                }
                found => {
                    self.extents.extend(open.take());
                    let last;
                    (at, last) = after_damage(seed, records, at, expected, end, found.err());
                    let (topic, first) = (section.topic.clone(), expected);
                    self.damaged_events.push(DamagedEvents { topic, first, last });
                    expected = last.next();
                }
            }
        }
        self.extents.extend(open.take());
        self.ids.push(ids);
    }
}

impl FrameExtent {
    fn add(&mut self, record: &Record<'_>) {
        self.bytes += u32::try_from(record.total_bytes()).unwrap_or(u32::MAX);
        self.count += 1;
        self.latest_ts = self.latest_ts.max(record.ts);
    }
}

/// Returns where to continue after the damaged record `expected` at `at`, and the last event that is
/// lost. If the next record follows at the plausible offset, only one event is lost.
fn after_damage(
    seed: RecordSeed,
    records: &[u8],
    at: usize,
    expected: Seq,
    end: Seq,
    fault: Option<RecordFault>,
) -> (usize, Seq) {
    let next = match fault {
        Some(RecordFault::Damaged { plausible_bytes: Some(bytes) }) => at + bytes,
        _ => records.len(),
    };
    let follows = expected.next() == end && next == records.len()
        || record::decode(seed, &records[next.min(records.len())..])
            .is_ok_and(|record| record.seq == expected.next());
    (next, if follows { expected } else { end.previous() })
}

fn state_changes(bytes: &[u8], expected: u32) -> Option<Vec<StateChange>> {
    if checksum(bytes) != expected {
        return None;
    }
    let mut bytes = Bytes::copy_from_slice(bytes);
    let mut changes = Vec::new();
    while !bytes.is_empty() {
        changes.push(StateChange::take_from(&mut bytes)?);
    }
    Some(changes)
}
