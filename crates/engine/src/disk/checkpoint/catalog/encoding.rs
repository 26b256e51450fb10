//! The encoding of the catalog.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut};
use prombus_proto::{Seq, Timestamp, Topic};

use super::{Catalog, CatalogTopic};
use crate::disk::ids::TopicOrdinal;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::recent::IdCoverage;
use crate::disk::ids::run::IdRunInfo;
use crate::disk::segment::{Segment, SegmentContent};
use crate::disk::state::run::StateRunInfo;
use crate::disk::storage::checksum::checksum;
use crate::disk::storage::file_header::{self, CATALOG, HEADER_BYTES, HeaderFault};

impl Catalog {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_slice(&file_header::encode(CATALOG, self.checkpoint));
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
        out.put_u32_le(count(self.id_runs.len()));
        self.id_runs.iter().for_each(|run| put_id_run(&mut out, run));
        out.put_u32_le(count(self.state_runs.len()));
        self.state_runs.iter().for_each(|run| put_state_run(&mut out, run));
        out.put_u32_le(count(self.topics.len()));
        self.topics.iter().for_each(|(name, topic)| put_topic(&mut out, name, topic));
        let sum = checksum(&out[HEADER_BYTES..]);
        out.put_u32_le(sum);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        file_header::decode(CATALOG, bytes)?;
        let body = &bytes[HEADER_BYTES..];
        let Some((covered, mut sum)) = body.split_at_checked(body.len().wrapping_sub(4)) else {
            return Err(HeaderFault::Damaged("truncated"));
        };
        if checksum(covered) != sum.get_u32_le() {
            return Err(HeaderFault::Damaged("checksum mismatch"));
        }
        let version = file_header::version(bytes);
        Self::decode_body(covered, version).ok_or(HeaderFault::Damaged("invalid fields"))
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
            state_runs: Vec::new(),
            topics: BTreeMap::new(),
        };
        for _ in 0..fields.try_get_u32_le().ok()? {
            catalog.id_runs.push(get_id_run(fields)?);
        }
        for _ in 0..fields.try_get_u32_le().ok()? {
            catalog.state_runs.push(get_state_run(fields, version)?);
        }
        for _ in 0..fields.try_get_u32_le().ok()? {
            let (name, topic) = get_topic(fields, version)?;
            catalog.topics.insert(name, topic);
        }
        fields.is_empty().then_some(catalog)
    }
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
    })
}

fn get_expiry(fields: &mut &[u8]) -> Option<Option<Timestamp>> {
    let at = fields.try_get_u64_le().ok()?;
    Some((at != u64::MAX).then_some(Timestamp(at)))
}

fn put_topic(out: &mut Vec<u8>, name: &Topic, topic: &CatalogTopic) {
    out.put_u8(u8::try_from(name.as_str().len()).expect("names have at most 200 bytes"));
    out.put_slice(name.as_str().as_bytes());
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
        let (first_record, record_bytes) = match segment.content {
            SegmentContent::Records => (0, 0),
            SegmentContent::Frames { first_record, record_bytes } => (first_record, record_bytes),
        };
        out.put_u64_le(first_record);
        out.put_u64_le(record_bytes);
        out.put_u64_le(segment.arrived.0);
        out.put_u128_le(segment.newest_id_before);
    }
}

fn get_topic(fields: &mut &[u8], version: u16) -> Option<(Topic, CatalogTopic)> {
    let length = usize::from(fields.try_get_u8().ok()?);
    let (name, rest) = fields.split_at_checked(length)?;
    let name = Topic::new(std::str::from_utf8(name).ok()?).ok()?;
    *fields = rest;
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
        let adopted = Segment { first: Seq(10), last: Seq(19), content, ..segment };
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
            segments: vec![segment, adopted],
        };
        Catalog {
            checkpoint: 8,
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
            }],
            topics: [(Topic::new("a.b").unwrap(), topic)].into(),
            ..Catalog::new(42)
        }
    }

    #[test]
    fn round_trips_and_detects_every_flipped_bit() {
        let bytes = catalog().encode();
        assert_eq!(Catalog::decode(&bytes), Ok(catalog()));
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
