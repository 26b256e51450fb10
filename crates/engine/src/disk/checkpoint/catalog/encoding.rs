//! The encoding of the catalog and of its edits.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut};
use prombus_proto::{Seq, Timestamp, Topic};

use super::edit::{CatalogEdit, TopicEdit};
use super::{Catalog, CatalogTopic};
use crate::disk::ids::TopicOrdinal;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::recent::IdCoverage;
use crate::disk::ids::run::IdRunInfo;
use crate::disk::segment::{Segment, SegmentContent};
use crate::disk::state::run::StateRunInfo;
use crate::disk::storage::checksum::checksum;
use crate::disk::storage::file_header::{
    self, CATALOG, CATALOG_EDIT, FileKind, HEADER_BYTES, HeaderFault,
};

/// The versions of the catalog whose rows are encoded like those of an edit of version 1 and 2.
const ROWS_OF_EDITS_V1: u16 = 5;
const ROWS_OF_EDITS: u16 = 6;

impl Catalog {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = file_header::encode(CATALOG, self.checkpoint).to_vec();
        for number in [
            self.checkpoint,
            self.checkpointed_wal,
            self.next_frame,
            self.last_version,
            self.store_seed,
            self.next_run,
        ] {
            out.put_u64_le(number);
        }
        put_runs(&mut out, &self.id_runs, &self.state_runs);
        out.put_u64_le(self.dead_ids);
        out.put_u32_le(count(self.topics.len()));
        self.topics.iter().for_each(|(name, topic)| put_topic(&mut out, name, topic));
        put_checksum(out)
    }

    /// Also returns the format version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, u16), HeaderFault> {
        let (body, version) = checked_body(CATALOG, bytes)?;
        let catalog = Self::decode_body(body, version).ok_or(INVALID_FIELDS)?;
        Ok((catalog, version))
    }

    fn decode_body(mut body: &[u8], version: u16) -> Option<Self> {
        let fields = &mut body;
        let mut catalog = Self {
            checkpoint: fields.try_get_u64_le().ok()?,
            checkpointed_wal: fields.try_get_u64_le().ok()?,
            next_frame: fields.try_get_u64_le().ok()?,
            last_version: fields.try_get_u64_le().ok()?,
            store_seed: fields.try_get_u64_le().ok()?,
            next_run: fields.try_get_u64_le().ok()?,
            id_runs: Vec::new(),
            dead_ids: 0,
            state_runs: Vec::new(),
            topics: BTreeMap::new(),
        };
        (catalog.id_runs, catalog.state_runs) = get_runs(fields, version)?;
        if version >= 6 {
            catalog.dead_ids = fields.try_get_u64_le().ok()?;
        }
        for _ in 0..fields.try_get_u32_le().ok()? {
            let (name, topic) = get_topic(fields, version)?;
            catalog.topics.insert(name, topic);
        }
        fields.is_empty().then_some(catalog)
    }
}

impl CatalogEdit {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = file_header::encode(CATALOG_EDIT, self.checkpoint).to_vec();
        for number in [
            self.checkpoint,
            self.checkpointed_wal,
            self.next_frame,
            self.last_version,
            self.next_run,
        ] {
            out.put_u64_le(number);
        }
        put_runs(&mut out, &self.id_runs, &self.state_runs);
        out.put_u64_le(self.dead_ids);
        out.put_u32_le(count(self.removed.len()));
        self.removed.iter().for_each(|name| put_name(&mut out, name));
        out.put_u32_le(count(self.topics.len()));
        for (name, edit) in &self.topics {
            out.put_u64_le(edit.replaced_from.0);
            put_topic(&mut out, name, &edit.row);
        }
        put_checksum(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let (body, version) = checked_body(CATALOG_EDIT, bytes)?;
        Self::decode_body(body, version).ok_or(INVALID_FIELDS)
    }

    fn decode_body(mut body: &[u8], version: u16) -> Option<Self> {
        let rows = if version >= 2 { ROWS_OF_EDITS } else { ROWS_OF_EDITS_V1 };
        let fields = &mut body;
        let mut edit = Self {
            checkpoint: fields.try_get_u64_le().ok()?,
            checkpointed_wal: fields.try_get_u64_le().ok()?,
            next_frame: fields.try_get_u64_le().ok()?,
            last_version: fields.try_get_u64_le().ok()?,
            next_run: fields.try_get_u64_le().ok()?,
            id_runs: Vec::new(),
            dead_ids: 0,
            state_runs: Vec::new(),
            removed: BTreeSet::new(),
            topics: BTreeMap::new(),
        };
        (edit.id_runs, edit.state_runs) = get_runs(fields, rows)?;
        if version >= 2 {
            edit.dead_ids = fields.try_get_u64_le().ok()?;
            for _ in 0..fields.try_get_u32_le().ok()? {
                edit.removed.insert(get_name(fields)?);
            }
        }
        for _ in 0..fields.try_get_u32_le().ok()? {
            let replaced_from = Seq(fields.try_get_u64_le().ok()?);
            let (name, row) = get_topic(fields, rows)?;
            edit.topics.insert(name, TopicEdit { replaced_from, row });
        }
        fields.is_empty().then_some(edit)
    }
}

const INVALID_FIELDS: HeaderFault = HeaderFault::Damaged("invalid fields");

/// Appends the checksum of everything after the header.
fn put_checksum(mut file: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&file[HEADER_BYTES..]);
    file.put_u32_le(sum);
    file
}

/// Checks the header and the checksum. Returns what lies between them, and the format version.
fn checked_body(kind: FileKind, file: &[u8]) -> Result<(&[u8], u16), HeaderFault> {
    file_header::decode(kind, file)?;
    let body = &file[HEADER_BYTES..];
    let Some((covered, mut sum)) = body.split_at_checked(body.len().wrapping_sub(4)) else {
        return Err(HeaderFault::Damaged("truncated"));
    };
    if checksum(covered) != sum.get_u32_le() {
        return Err(HeaderFault::Damaged("checksum mismatch"));
    }
    Ok((covered, file_header::version(file)))
}

fn put_runs(out: &mut Vec<u8>, id_runs: &[IdRunInfo], state_runs: &[StateRunInfo]) {
    out.put_u32_le(count(id_runs.len()));
    id_runs.iter().for_each(|run| put_id_run(out, run));
    out.put_u32_le(count(state_runs.len()));
    state_runs.iter().for_each(|run| put_state_run(out, run));
}

fn get_runs(fields: &mut &[u8], version: u16) -> Option<(Vec<IdRunInfo>, Vec<StateRunInfo>)> {
    let (mut id_runs, mut state_runs) = (Vec::new(), Vec::new());
    for _ in 0..fields.try_get_u32_le().ok()? {
        id_runs.push(get_id_run(fields)?);
    }
    for _ in 0..fields.try_get_u32_le().ok()? {
        state_runs.push(get_state_run(fields, version)?);
    }
    Some((id_runs, state_runs))
}

fn count(items: usize) -> u32 {
    u32::try_from(items).expect("a catalog lists less than 2^32 of anything")
}

fn put_id_run(out: &mut Vec<u8>, run: &IdRunInfo) {
    out.put_u64_le(run.number);
    out.put_u32_le(run.level);
    out.put_u64_le(run.home_pages);
    out.put_u8(u8::from(run.coverage.others));
    out.put_u8(u8::from(run.coverage.v7_millis.is_some()));
    let (from, to) = run.coverage.v7_millis.unwrap_or_default();
    out.put_u64_le(from);
    out.put_u64_le(to);
}

fn get_id_run(fields: &mut &[u8]) -> Option<IdRunInfo> {
    let (number, level) = (fields.try_get_u64_le().ok()?, fields.try_get_u32_le().ok()?);
    let home_pages = fields.try_get_u64_le().ok()?;
    let others = fields.try_get_u8().ok()? != 0;
    let has_v7 = fields.try_get_u8().ok()? != 0;
    let millis = (fields.try_get_u64_le().ok()?, fields.try_get_u64_le().ok()?);
    let coverage = IdCoverage { v7_millis: has_v7.then_some(millis), others };
    Some(IdRunInfo { number, level, home_pages, coverage })
}

fn put_state_run(out: &mut Vec<u8>, run: &StateRunInfo) {
    out.put_u64_le(run.number);
    out.put_u32_le(run.level);
    out.put_u64_le(run.entries);
    out.put_u64_le(run.root);
    out.put_u64_le(run.filter);
    out.put_u64_le(run.filter_blocks);
    out.put_u64_le(run.all_expire_by.map_or(u64::MAX, |at| at.0));
    out.put_u64_le(run.half_expire_by.map_or(u64::MAX, |at| at.0));
    out.put_u64_le(run.deletes);
}

fn get_state_run(fields: &mut &[u8], version: u16) -> Option<StateRunInfo> {
    Some(StateRunInfo {
        number: fields.try_get_u64_le().ok()?,
        level: fields.try_get_u32_le().ok()?,
        entries: fields.try_get_u64_le().ok()?,
        root: fields.try_get_u64_le().ok()?,
        filter: fields.try_get_u64_le().ok()?,
        filter_blocks: fields.try_get_u64_le().ok()?,
        all_expire_by: get_expiry(fields)?,
        // Version 1 did not record it; the next merge of the run does.
        half_expire_by: if version >= 2 { get_expiry(fields)? } else { None },
        // Not recorded before version 6; the next merge of the run does.
        deletes: if version >= 6 { fields.try_get_u64_le().ok()? } else { 0 },
    })
}

fn get_expiry(fields: &mut &[u8]) -> Option<Option<Timestamp>> {
    let at = fields.try_get_u64_le().ok()?;
    Some((at != u64::MAX).then_some(Timestamp(at)))
}

fn put_name(out: &mut Vec<u8>, name: &Topic) {
    out.put_u8(u8::try_from(name.as_str().len()).expect("names have at most 200 bytes"));
    out.put_slice(name.as_str().as_bytes());
}

fn get_name(fields: &mut &[u8]) -> Option<Topic> {
    let length = usize::from(fields.try_get_u8().ok()?);
    let (name, rest) = fields.split_at_checked(length)?;
    *fields = rest;
    Topic::new(std::str::from_utf8(name).ok()?).ok()
}

fn put_topic(out: &mut Vec<u8>, name: &Topic, topic: &CatalogTopic) {
    put_name(out, name);
    out.put_u32_le(topic.ordinal.0);
    out.put_u64_le(topic.first.0);
    out.put_u64_le(topic.next.0);
    out.put_u128_le(topic.newest_ids.monotonic);
    out.put_u64_le(topic.rule);
    out.put_u64_le(topic.trimmed_arrival.0);
    let (lowest, highest) = topic.newest_ids.ahead.unwrap_or_default();
    out.put_u128_le(lowest);
    out.put_u128_le(highest);
    out.put_u32_le(count(topic.segments.len()));
    for segment in &topic.segments {
        out.put_u64_le(segment.first.0);
        out.put_u64_le(segment.last.0);
        out.put_u64_le(segment.end);
        out.put_u64_le(segment.latest_ts.0);
        out.put_u128_le(segment.newest_id);
        out.put_u32_le(segment.index_entries);
        out.put_u64_le(segment.created_at.0);
        let (first_record, record_bytes, pack) = match segment.content {
            SegmentContent::Records => (0, 0, 0),
            SegmentContent::Frames { first_record, record_bytes } => {
                (first_record, record_bytes, 0)
            }
            SegmentContent::Packed { pack, offset } => (offset, segment.end - offset, pack),
        };
        out.put_u64_le(first_record);
        out.put_u64_le(record_bytes);
        out.put_u64_le(segment.arrived.0);
        out.put_u128_le(segment.newest_id_before);
        out.put_u64_le(pack);
    }
}

fn get_topic(fields: &mut &[u8], version: u16) -> Option<(Topic, CatalogTopic)> {
    let name = get_name(fields)?;
    let mut topic = CatalogTopic {
        ordinal: TopicOrdinal(fields.try_get_u32_le().ok()?),
        first: Seq(fields.try_get_u64_le().ok()?),
        next: Seq(fields.try_get_u64_le().ok()?),
        newest_ids: NewestIds { monotonic: fields.try_get_u128_le().ok()?, ahead: None },
        rule: fields.try_get_u64_le().ok()?,
        trimmed_arrival: Timestamp(0),
        segments: Vec::new(),
    };
    if version >= 4 {
        topic.trimmed_arrival = Timestamp(fields.try_get_u64_le().ok()?);
        let ahead = (fields.try_get_u128_le().ok()?, fields.try_get_u128_le().ok()?);
        topic.newest_ids.ahead = (ahead.1 > 0).then_some(ahead);
    }
    for _ in 0..fields.try_get_u32_le().ok()? {
        let mut segment = Segment {
            first: Seq(fields.try_get_u64_le().ok()?),
            last: Seq(fields.try_get_u64_le().ok()?),
            end: fields.try_get_u64_le().ok()?,
            latest_ts: Timestamp(fields.try_get_u64_le().ok()?),
            arrived: Timestamp(0),
            newest_id_before: topic.segments.last().map_or(0, |before| before.newest_id),
            newest_id: fields.try_get_u128_le().ok()?,
            index_entries: fields.try_get_u32_le().ok()?,
            created_at: Timestamp(fields.try_get_u64_le().ok()?),
            // Before version 3, no WAL file was adopted as a segment.
            content: if version >= 3 { get_content(fields)? } else { SegmentContent::Records },
        };
        if version >= 4 {
            segment.arrived = Timestamp(fields.try_get_u64_le().ok()?);
            segment.newest_id_before = fields.try_get_u128_le().ok()?;
        } else {
            // The time of its publisher, but not from before the segment existed.
            segment.arrived = segment.latest_ts.max(segment.created_at);
        }
        // Before version 5, every segment had its own file.
        let pack = if version >= 5 { fields.try_get_u64_le().ok()? } else { 0 };
        if let (1.., SegmentContent::Frames { first_record: offset, .. }) = (pack, segment.content)
        {
            segment.content = SegmentContent::Packed { pack, offset };
        }
        topic.segments.push(segment);
    }
    Some((name, topic))
}

fn get_content(fields: &mut &[u8]) -> Option<SegmentContent> {
    let (first_record, record_bytes) =
        (fields.try_get_u64_le().ok()?, fields.try_get_u64_le().ok()?);
    Some(match first_record {
        0 => SegmentContent::Records,
        _ => SegmentContent::Frames { first_record, record_bytes },
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn catalog() -> Catalog {
        let coverage = IdCoverage { v7_millis: Some((3, 4)), others: true };
        let segment = Segment {
            first: Seq(2),
            last: Seq(9),
            end: 4000,
            latest_ts: Timestamp(77),
            arrived: Timestamp(78),
            newest_id_before: 4,
            newest_id: 5,
            index_entries: 1,
            created_at: Timestamp(70),
            content: SegmentContent::Records,
        };
        let content = SegmentContent::Frames { first_record: 120, record_bytes: 3000 };
        let adopted = Segment { first: Seq(10), last: Seq(18), content, ..segment };
        let content = SegmentContent::Packed { pack: 3, offset: 3900 };
        let packed = Segment { first: Seq(19), last: Seq(19), content, ..segment };
        let topic = CatalogTopic {
            ordinal: TopicOrdinal(5),
            first: Seq(3),
            next: Seq(20),
            newest_ids: NewestIds {
                monotonic: u128::MAX - 9,
                ahead: Some((u128::MAX - 1, u128::MAX)),
            },
            rule: 6,
            trimmed_arrival: Timestamp(66),
            segments: vec![segment, adopted, packed],
        };
        Catalog {
            checkpoint: 8,
            dead_ids: 3,
            id_runs: vec![IdRunInfo { number: 1, level: 2, home_pages: 3, coverage }],
            state_runs: vec![StateRunInfo {
                number: 4,
                level: 0,
                entries: 5,
                root: 6,
                filter: 7,
                filter_blocks: 8,
                all_expire_by: Some(Timestamp(9)),
                half_expire_by: Some(Timestamp(8)),
                deletes: 2,
            }],
            topics: [(Topic::new("a.b").unwrap(), topic)].into(),
            ..Catalog::new(42)
        }
    }

    #[test]
    fn an_edit_round_trips_and_detects_every_flipped_bit() {
        let mut edit = Catalog::new(42).edit();
        let row = catalog().topics.into_values().next().unwrap();
        let topic = TopicEdit { replaced_from: Seq(7), row };
        edit.topics.insert(Topic::new("a.b").unwrap(), topic);
        edit.removed.insert(Topic::new("c").unwrap());
        edit.dead_ids = 9;
        let bytes = edit.encode();
        assert_eq!(CatalogEdit::decode(&bytes), Ok(edit));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(CatalogEdit::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn round_trips_and_detects_every_flipped_bit() {
        let bytes = catalog().encode();
        assert_eq!(Catalog::decode(&bytes), Ok((catalog(), ROWS_OF_EDITS)));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Catalog::decode(&flipped).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Catalog::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
