//! A frame of the write-ahead log: all commits that were gathered for one write, all or nothing.
//!
//! ```text
//! head | records of the first topic | … of the next | state changes | head again
//! ```
//!
//! The head says which topics and positions the frame holds. It stands at both ends, so that one
//! damaged spot never hides what was lost. The records of a topic have a checksum for all of them,
//! which is quick to check, and one each (see `record`), which tells what is lost where it does not
//! fit; the state changes have one for all of them.
//!
//! ```text
//! head: magic u32 | head bytes u32 | body bytes u32 | state bytes u32 | state checksum u32
//!       | number u64 | last version u64 | runs u32 | trims u32
//!       | (first seq u64 | count u32 | bytes u32 | checksum u32 | latest ts u64 | name)…  | (below u64 | rule u64 | name)…
//!       | checksum u32
//! name: length u8 | text
//! ```

use bytes::{Buf, BufMut, Bytes};
use prombus_proto::{Seq, Timestamp, Topic};

use crate::disk::checksum::checksum;
use crate::{StateKey, Version};

const HEAD_MAGIC: u32 = u32::from_le_bytes(*b"PBhd");
const FOOT_MAGIC: u32 = u32::from_le_bytes(*b"PBft");
const FIXED_HEAD_BYTES: usize = 5 * 4 + 2 * 8 + 2 * 4;
const CHECKSUM_BYTES: usize = 4;

/// What a frame holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    /// Counts the frames of a store, without holes.
    pub(crate) number: u64,
    /// The version of the newest commit in it.
    pub(crate) last_version: Version,
    pub(crate) runs: Vec<Run>,
    pub(crate) trims: Vec<Trim>,
    pub(crate) state_bytes: u32,
    pub(crate) state_checksum: u32,
}

/// The events of one topic in a frame: a row of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) topic: Topic,
    pub(crate) first: Seq,
    pub(crate) count: u32,
    pub(crate) bytes: u32,
    /// Of all its records together, block by block.
    pub(crate) checksum: u32,
    pub(crate) latest_ts: Timestamp,
}

/// A topic's new beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trim {
    pub(crate) topic: Topic,
    pub(crate) below: Seq,
    /// The revision of the newest retention rule that was applied.
    pub(crate) rule: u64,
}

/// A change of the keyed state, its expectation already checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateChange {
    pub(crate) key: StateKey,
    pub(crate) version: Version,
    /// What was put, or nothing where it was deleted.
    pub(crate) put: Option<(Bytes, Option<Timestamp>)>,
}

/// Which end of a frame a head was found at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Head,
    Foot,
}

impl FrameHead {
    /// The whole length of head, body and foot.
    pub(crate) fn frame_bytes(&self) -> u64 {
        2 * self.head_bytes() as u64 + self.body_bytes()
    }

    pub(crate) fn head_bytes(&self) -> usize {
        let runs: usize = self.runs.iter().map(|run| 28 + 1 + run.topic.as_str().len()).sum();
        let trims: usize = self.trims.iter().map(|trim| 16 + 1 + trim.topic.as_str().len()).sum();
        FIXED_HEAD_BYTES + runs + trims + CHECKSUM_BYTES
    }

    fn body_bytes(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.bytes)).sum::<u64>() + u64::from(self.state_bytes)
    }

    pub(crate) fn encode(&self, end: End) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head_bytes());
        self.append_to(end, &mut out);
        out
    }

    pub(crate) fn append_to(&self, end: End, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32_le(match end {
            End::Head => HEAD_MAGIC,
            End::Foot => FOOT_MAGIC,
        });
        out.put_u32_le(length(self.head_bytes()));
        out.put_u32_le(u32::try_from(self.body_bytes()).expect("a frame is below 4 GiB"));
        out.put_u32_le(self.state_bytes);
        out.put_u32_le(self.state_checksum);
        out.put_u64_le(self.number);
        out.put_u64_le(self.last_version.0);
        out.put_u32_le(length(self.runs.len()));
        out.put_u32_le(length(self.trims.len()));
        for run in &self.runs {
            out.put_u64_le(run.first.0);
            out.put_u32_le(run.count);
            out.put_u32_le(run.bytes);
            out.put_u32_le(run.checksum);
            out.put_u64_le(run.latest_ts.0);
            put_name(out, &run.topic);
        }
        for trim in &self.trims {
            out.put_u64_le(trim.below.0);
            out.put_u64_le(trim.rule);
            put_name(out, &trim.topic);
        }
        let sum = checksum(&out[start..]);
        out.put_u32_le(sum);
    }

    /// The head at the beginning of `bytes`, and which end of its frame it marks. `None` where
    /// there is no whole, undamaged head.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(End, FrameHead)> {
        let mut fields = bytes;
        let end = match fields.try_get_u32_le().ok()? {
            HEAD_MAGIC => End::Head,
            FOOT_MAGIC => End::Foot,
            _ => return None,
        };
        let head_bytes = fields.try_get_u32_le().ok()? as usize;
        let covered = bytes.get(..head_bytes.checked_sub(CHECKSUM_BYTES)?)?;
        let mut sum = bytes.get(covered.len()..head_bytes)?;
        if covered.len() < FIXED_HEAD_BYTES || checksum(covered) != sum.get_u32_le() {
            return None;
        }
        // The checksum fits: what follows is as it was written. Still no panic on a bad length.
        let mut fields = &covered[8..];
        let body_bytes = u64::from(fields.try_get_u32_le().ok()?);
        let mut head = FrameHead {
            state_bytes: fields.try_get_u32_le().ok()?,
            state_checksum: fields.try_get_u32_le().ok()?,
            number: fields.try_get_u64_le().ok()?,
            last_version: Version(fields.try_get_u64_le().ok()?),
            runs: Vec::new(),
            trims: Vec::new(),
        };
        let runs = fields.try_get_u32_le().ok()?;
        let trims = fields.try_get_u32_le().ok()?;
        for _ in 0..runs {
            head.runs.push(Run {
                first: Seq(fields.try_get_u64_le().ok()?),
                count: fields.try_get_u32_le().ok()?,
                bytes: fields.try_get_u32_le().ok()?,
                checksum: fields.try_get_u32_le().ok()?,
                latest_ts: Timestamp(fields.try_get_u64_le().ok()?),
                topic: get_name(&mut fields)?,
            });
        }
        for _ in 0..trims {
            head.trims.push(Trim {
                below: Seq(fields.try_get_u64_le().ok()?),
                rule: fields.try_get_u64_le().ok()?,
                topic: get_name(&mut fields)?,
            });
        }
        (fields.is_empty() && head.body_bytes() == body_bytes).then_some((end, head))
    }

    /// How many bytes the head at the beginning of `bytes` says it has, before it is checked.
    pub(crate) fn claimed_head_bytes(bytes: &[u8]) -> Option<usize> {
        let mut fields = bytes;
        let magic = fields.try_get_u32_le().ok()?;
        let claimed = fields.try_get_u32_le().ok()? as usize;
        (magic == HEAD_MAGIC || magic == FOOT_MAGIC).then_some(claimed)
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

impl StateChange {
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.put.is_some()));
        out.put_u64_le(self.version.0);
        out.put_u16_le(u16::try_from(self.key.as_bytes().len()).expect("keys are below 64 KiB"));
        out.put_slice(self.key.as_bytes());
        if let Some((value, expires_at)) = &self.put {
            out.put_u64_le(expires_at.map_or(u64::MAX, |at| at.0));
            out.put_u32_le(length(value.len()));
            out.put_slice(value);
        }
    }

    /// The change at the beginning of `bytes`, which moves on behind it.
    pub(crate) fn take_from(bytes: &mut Bytes) -> Option<StateChange> {
        let has_value = bytes.try_get_u8().ok()? != 0;
        let version = Version(bytes.try_get_u64_le().ok()?);
        let key_bytes = usize::from(bytes.try_get_u16_le().ok()?);
        let key = StateKey::new(take(bytes, key_bytes)?).ok()?;
        let put = if has_value {
            let expires_at = Some(bytes.try_get_u64_le().ok()?).filter(|at| *at != u64::MAX);
            let value_bytes = bytes.try_get_u32_le().ok()? as usize;
            Some((take(bytes, value_bytes)?, expires_at.map(Timestamp)))
        } else {
            None
        };
        Some(StateChange { key, version, put })
    }
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> FrameHead {
        let topic = |name| Topic::new(name).unwrap();
        FrameHead {
            number: 7,
            last_version: Version(99),
            runs: vec![
                Run {
                    topic: topic("a"),
                    first: Seq(1),
                    count: 2,
                    bytes: 300,
                    checksum: 31,
                    latest_ts: Timestamp(5),
                },
                Run {
                    topic: topic("b.c"),
                    first: Seq(8),
                    count: 1,
                    bytes: 90,
                    checksum: 32,
                    latest_ts: Timestamp(6),
                },
            ],
            trims: vec![Trim { topic: topic("d"), below: Seq(4), rule: 3 }],
            state_bytes: 17,
            state_checksum: 0xABCD,
        }
    }

    #[test]
    fn what_went_in_comes_out() {
        for end in [End::Head, End::Foot] {
            let mut bytes = Vec::new();
            head().append_to(end, &mut bytes);
            assert_eq!(bytes.len(), head().head_bytes());
            bytes.extend_from_slice(b"body");
            assert_eq!(FrameHead::decode(&bytes), Some((end, head())));
        }
        assert_eq!(head().frame_bytes(), 2 * head().head_bytes() as u64 + 407);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let mut bytes = Vec::new();
        head().append_to(End::Head, &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHead::decode(&flipped), None, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(FrameHead::decode(&bytes[..cut]), None);
        }
    }

    #[test]
    fn state_changes_follow_each_other() {
        let key = |text: &'static str| StateKey::new(text.as_bytes()).unwrap();
        let changes = [
            StateChange { key: key("a"), version: Version(1), put: None },
            StateChange { key: key("b"), version: Version(2), put: Some((Bytes::new(), None)) },
            StateChange {
                key: key("c"),
                version: Version(3),
                put: Some((Bytes::from_static(b"v"), Some(Timestamp(9)))),
            },
        ];
        let mut bytes = Vec::new();
        changes.iter().for_each(|change| change.append_to(&mut bytes));
        let mut bytes = Bytes::from(bytes);
        let back: Vec<_> = std::iter::from_fn(|| StateChange::take_from(&mut bytes)).collect();
        assert_eq!(back, changes);
        assert!(bytes.is_empty());
    }
}
