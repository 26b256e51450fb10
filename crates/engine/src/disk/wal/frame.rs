//! A frame of the write-ahead log: the commits of one batch, stored atomically.
//!
//! ```text
//! header | records of the first topic | … of the next | state changes | header again, as the footer
//! ```
//!
//! The header lists the topics and positions of the frame. It is repeated at the end, so that a
//! single damaged spot never hides what was lost. The records of a topic have one checksum over all
//! of them, which is fast to verify, and one each (see `record`), which tells which of them are
//! lost if the first does not match. The state changes share one checksum.
//!
//! ```text
//! header: magic u32 | header bytes u32 | body bytes u32 | state bytes u32 | state checksum u32
//!         | number u64 | last version u64 | arrived u64 | sections u32 | trims u32
//!         | (first seq u64 | count u32 | bytes u32 | checksum u32 | latest ts u64 | name)…
//!         | (below u64 | rule u64 | name)… [ | deletions u32 | (below u64 | name)… ] | checksum u32
//! name:   length u8 | text
//! ```
//!
//! The magic tells the version of the header. In version 1 of the WAL it was another one, and the
//! header did not have `arrived`. Such frames are still found in old WAL files and in segments that
//! were adopted from them. A frame without deletions is of version 2, one with them of version 3. A frame is
//! decoded without the header of its file, which may be damaged.
//!
//! Everything of a topic below the position of its deletion is gone. The numbering goes on there, so that
//! positions never fall within a file. Once a checkpoint has removed a deleted topic from the catalog, only
//! the log could know where, so a frame with the first events after a deletion repeats it.

use bytes::{Buf, BufMut};
use prombus_proto::{Seq, Timestamp, Topic};

use crate::Version;
use crate::disk::storage::checksum::checksum;

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"PBh3");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"PBf3");
const HEADER_MAGIC_V2: u32 = u32::from_le_bytes(*b"PBh2");
const FOOTER_MAGIC_V2: u32 = u32::from_le_bytes(*b"PBf2");
const HEADER_MAGIC_V1: u32 = u32::from_le_bytes(*b"PBhd");
const FOOTER_MAGIC_V1: u32 = u32::from_le_bytes(*b"PBft");
/// Without `arrived`, which version 1 does not have.
const FIXED_HEADER_BYTES: usize = 5 * 4 + 2 * 8 + 2 * 4;
const CHECKSUM_BYTES: usize = 4;

/// The header of a frame, which is also its footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Counts the frames of a store, without gaps.
    pub(crate) number: u64,
    /// The version of the newest commit in the frame.
    pub(crate) last_version: Version,
    /// What the clock said when the frame was built. `None` in version 1.
    pub(crate) arrived: Option<Timestamp>,
    pub(crate) sections: Vec<TopicSection>,
    pub(crate) trims: Vec<Trim>,
    /// At most one for each topic. Applied after the sections, before the trims.
    pub(crate) deletions: Vec<Deletion>,
    pub(crate) state_bytes: u32,
    pub(crate) state_checksum: u32,
}

/// The records of one topic in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicSection {
    pub(crate) topic: Topic,
    pub(crate) first: Seq,
    pub(crate) count: u32,
    pub(crate) bytes: u32,
    /// Covers all of its records, see `BlockChecksum`.
    pub(crate) checksum: u32,
    pub(crate) latest_ts: Timestamp,
}

/// Drops the events of a topic below a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trim {
    pub(crate) topic: Topic,
    pub(crate) below: Seq,
    /// The revision of the newest retention rule that was applied.
    pub(crate) rule: u64,
}

/// Deletes what a topic has below a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) topic: Topic,
    pub(crate) below: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameVersion {
    V1,
    V2,
    V3,
}

/// The two ends of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameEnd {
    Header,
    Footer,
}

impl FrameHeader {
    /// The length of header, body and footer.
    pub(crate) fn frame_bytes(&self) -> u64 {
        2 * self.header_bytes() as u64 + self.body_bytes()
    }

    pub(crate) fn header_bytes(&self) -> usize {
        let section_bytes = |section: &TopicSection| 28 + 1 + section.topic.as_str().len();
        let sections: usize = self.sections.iter().map(section_bytes).sum();
        let trims: usize = self.trims.iter().map(|trim| 16 + 1 + trim.topic.as_str().len()).sum();
        let arrived = if self.arrived.is_some() { 8 } else { 0 };
        let deletion_bytes = |deletion: &Deletion| 8 + 1 + deletion.topic.as_str().len();
        let deletions = match self.version() {
            FrameVersion::V3 => 4 + self.deletions.iter().map(deletion_bytes).sum::<usize>(),
            FrameVersion::V1 | FrameVersion::V2 => 0,
        };
        FIXED_HEADER_BYTES + arrived + sections + trims + deletions + CHECKSUM_BYTES
    }

    fn version(&self) -> FrameVersion {
        match self.arrived {
            None => FrameVersion::V1,
            Some(_) if self.deletions.is_empty() => FrameVersion::V2,
            Some(_) => FrameVersion::V3,
        }
    }

    fn body_bytes(&self) -> u64 {
        let records: u64 = self.sections.iter().map(|section| u64::from(section.bytes)).sum();
        records + u64::from(self.state_bytes)
    }

    pub(crate) fn encode(&self, end: FrameEnd) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.header_bytes());
        self.append_to(end, &mut out);
        out
    }

    pub(crate) fn append_to(&self, end: FrameEnd, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32_le(match (end, self.version()) {
            (FrameEnd::Header, FrameVersion::V3) => HEADER_MAGIC,
            (FrameEnd::Footer, FrameVersion::V3) => FOOTER_MAGIC,
            (FrameEnd::Header, FrameVersion::V2) => HEADER_MAGIC_V2,
            (FrameEnd::Footer, FrameVersion::V2) => FOOTER_MAGIC_V2,
            (FrameEnd::Header, FrameVersion::V1) => HEADER_MAGIC_V1,
            (FrameEnd::Footer, FrameVersion::V1) => FOOTER_MAGIC_V1,
        });
        out.put_u32_le(length(self.header_bytes()));
        out.put_u32_le(u32::try_from(self.body_bytes()).expect("a frame is below 4 GiB"));
        out.put_u32_le(self.state_bytes);
        out.put_u32_le(self.state_checksum);
        out.put_u64_le(self.number);
        out.put_u64_le(self.last_version.0);
        self.arrived.iter().for_each(|arrived| out.put_u64_le(arrived.0));
        out.put_u32_le(length(self.sections.len()));
        out.put_u32_le(length(self.trims.len()));
        for section in &self.sections {
            out.put_u64_le(section.first.0);
            out.put_u32_le(section.count);
            out.put_u32_le(section.bytes);
            out.put_u32_le(section.checksum);
            out.put_u64_le(section.latest_ts.0);
            put_name(out, &section.topic);
        }
        for trim in &self.trims {
            out.put_u64_le(trim.below.0);
            out.put_u64_le(trim.rule);
            put_name(out, &trim.topic);
        }
        if self.version() == FrameVersion::V3 {
            out.put_u32_le(length(self.deletions.len()));
            for deletion in &self.deletions {
                out.put_u64_le(deletion.below.0);
                put_name(out, &deletion.topic);
            }
        }
        let sum = checksum(&out[start..]);
        out.put_u32_le(sum);
    }

    /// Decodes the header or footer at the start of `bytes`. Returns `None` if it is not complete or
    /// not intact.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(FrameEnd, FrameHeader)> {
        let mut fields = bytes;
        let (end, version) = frame_end(fields.try_get_u32_le().ok()?)?;
        let header_bytes = fields.try_get_u32_le().ok()? as usize;
        let covered = bytes.get(..header_bytes.checked_sub(CHECKSUM_BYTES)?)?;
        let mut sum = bytes.get(covered.len()..header_bytes)?;
        if covered.len() < FIXED_HEADER_BYTES || checksum(covered) != sum.get_u32_le() {
            return None;
        }
        // The checksum matches, so the fields are as written. A bad length must still not panic.
        let mut fields = &covered[8..];
        let body_bytes = u64::from(fields.try_get_u32_le().ok()?);
        let mut header = FrameHeader {
            state_bytes: fields.try_get_u32_le().ok()?,
            state_checksum: fields.try_get_u32_le().ok()?,
            number: fields.try_get_u64_le().ok()?,
            last_version: Version(fields.try_get_u64_le().ok()?),
            arrived: match version {
                FrameVersion::V1 => None,
                FrameVersion::V2 | FrameVersion::V3 => {
                    Some(Timestamp(fields.try_get_u64_le().ok()?))
                }
            },
            sections: Vec::new(),
            trims: Vec::new(),
            deletions: Vec::new(),
        };
        let sections = fields.try_get_u32_le().ok()?;
        let trims = fields.try_get_u32_le().ok()?;
        for _ in 0..sections {
            header.sections.push(TopicSection {
                first: Seq(fields.try_get_u64_le().ok()?),
                count: fields.try_get_u32_le().ok()?,
                bytes: fields.try_get_u32_le().ok()?,
                checksum: fields.try_get_u32_le().ok()?,
                latest_ts: Timestamp(fields.try_get_u64_le().ok()?),
                topic: get_name(&mut fields)?,
            });
        }
        for _ in 0..trims {
            header.trims.push(Trim {
                below: Seq(fields.try_get_u64_le().ok()?),
                rule: fields.try_get_u64_le().ok()?,
                topic: get_name(&mut fields)?,
            });
        }
        if version == FrameVersion::V3 {
            for _ in 0..fields.try_get_u32_le().ok()? {
                let below = Seq(fields.try_get_u64_le().ok()?);
                header.deletions.push(Deletion { below, topic: get_name(&mut fields)? });
            }
        }
        (fields.is_empty() && header.body_bytes() == body_bytes).then_some((end, header))
    }

    /// The length that the header at the start of `bytes` claims to have, before it is verified.
    pub(crate) fn claimed_header_bytes(bytes: &[u8]) -> Option<usize> {
        let mut fields = bytes;
        let magic = fields.try_get_u32_le().ok()?;
        let claimed = fields.try_get_u32_le().ok()? as usize;
        frame_end(magic).map(|_| claimed)
    }
}

/// Returns which end of a frame starts with `magic`, and its version.
fn frame_end(magic: u32) -> Option<(FrameEnd, FrameVersion)> {
    match magic {
        HEADER_MAGIC => Some((FrameEnd::Header, FrameVersion::V3)),
        FOOTER_MAGIC => Some((FrameEnd::Footer, FrameVersion::V3)),
        HEADER_MAGIC_V2 => Some((FrameEnd::Header, FrameVersion::V2)),
        FOOTER_MAGIC_V2 => Some((FrameEnd::Footer, FrameVersion::V2)),
        HEADER_MAGIC_V1 => Some((FrameEnd::Header, FrameVersion::V1)),
        FOOTER_MAGIC_V1 => Some((FrameEnd::Footer, FrameVersion::V1)),
        _ => None,
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a frame is below 4 GiB")
}

fn put_name(out: &mut Vec<u8>, topic: &Topic) {
    let name = topic.as_str().as_bytes();
    out.put_u8(u8::try_from(name.len()).expect("topic names have at most 200 bytes"));
    out.put_slice(name);
}

fn get_name(fields: &mut &[u8]) -> Option<Topic> {
    let length = usize::from(fields.try_get_u8().ok()?);
    let (name, rest) = fields.split_at_checked(length)?;
    *fields = rest;
    Topic::new(std::str::from_utf8(name).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        let topic = |name| Topic::new(name).unwrap();
        FrameHeader {
            number: 7,
            last_version: Version(99),
            arrived: Some(Timestamp(8)),
            sections: vec![
                TopicSection {
                    topic: topic("a"),
                    first: Seq(1),
                    count: 2,
                    bytes: 300,
                    checksum: 31,
                    latest_ts: Timestamp(5),
                },
                TopicSection {
                    topic: topic("b.c"),
                    first: Seq(8),
                    count: 1,
                    bytes: 90,
                    checksum: 32,
                    latest_ts: Timestamp(6),
                },
            ],
            trims: vec![Trim { topic: topic("d"), below: Seq(4), rule: 3 }],
            deletions: vec![
                Deletion { topic: topic("b.c"), below: Seq(8) },
                Deletion { topic: topic("e"), below: Seq(1) },
            ],
            state_bytes: 17,
            state_checksum: 0xABCD,
        }
    }

    #[test]
    fn header_and_footer_round_trip_in_all_versions() {
        let second = FrameHeader { deletions: vec![], ..header() };
        let first = FrameHeader { arrived: None, ..second.clone() };
        for header in [header(), second, first] {
            for end in [FrameEnd::Header, FrameEnd::Footer] {
                let mut bytes = Vec::new();
                header.append_to(end, &mut bytes);
                assert_eq!(bytes.len(), header.header_bytes());
                assert_eq!(FrameHeader::claimed_header_bytes(&bytes), Some(bytes.len()));
                bytes.extend_from_slice(b"body");
                assert_eq!(FrameHeader::decode(&bytes), Some((end, header.clone())));
            }
        }
        assert_eq!(header().frame_bytes(), 2 * header().header_bytes() as u64 + 407);
    }

    #[test]
    fn detects_every_flipped_bit_and_every_truncation() {
        let mut bytes = Vec::new();
        header().append_to(FrameEnd::Header, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&flipped), None, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(FrameHeader::decode(&bytes[..cut]), None);
        }
    }
}
