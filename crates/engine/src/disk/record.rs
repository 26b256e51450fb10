//! The encoding of an event, the same in the write-ahead log and in segments, so that a checkpoint
//! copies the bytes.
//!
//! ```text
//! checksum u32 | length u32 | seq u64 | ts u64 | id length u16 | key length u16 | id | key | json
//! ```
//!
//! `length` counts the bytes after itself. The checksum covers everything after itself, xored with
//! the checksum of the topic's name, so that a record in another topic's file is detected. The top
//! bit of the id length is set if the id is the 16 bytes of a UUID.

pub(crate) mod walk;

use bytes::{BufMut, Bytes};
use prombus_proto::limits::{MAX_EVENT_BYTES, MAX_ID_BYTES, MAX_KEY_BYTES};
use prombus_proto::{EncodedEvent, EventId, Key, Seq, Timestamp, Topic};
use uuid::Uuid;

use crate::StoredEvent;
use crate::disk::storage::checksum::{checksum, combine};

const CHECKSUM_BYTES: usize = 4;
const PREFIX_BYTES: usize = CHECKSUM_BYTES + 4;
pub(crate) const FIXED_BYTES: usize = PREFIX_BYTES + 8 + 8 + 2 + 2;
const UUID_FLAG: u16 = 0x8000;
const NO_KEY: u16 = 0xFFFF;

/// The length of the longest possible record.
pub(crate) const MAX_RECORD_BYTES: usize =
    FIXED_BYTES + MAX_ID_BYTES + MAX_KEY_BYTES + MAX_EVENT_BYTES;
/// The length of the shortest possible record: an id has at least one byte, and JSON two (`{}`).
pub(crate) const MIN_RECORD_BYTES: usize = FIXED_BYTES + 1 + 2;

/// The value xored into the checksums of a topic's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordSeed(u32);

impl RecordSeed {
    pub(crate) fn of(topic: &Topic) -> Self {
        Self(checksum(topic.as_str().as_bytes()))
    }
}

/// A decoded record that borrows its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) seq: Seq,
    pub(crate) ts: Timestamp,
    bytes: &'a [u8],
    id_is_uuid: bool,
    id_end: usize,
    key_end: Option<usize>,
}

/// Why no record was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFault {
    /// The buffer ends before the record, which needs at least this many bytes.
    Truncated { needed: usize },
    /// The record is damaged. If its length is plausible, the next record may start after it.
    Damaged { plausible_bytes: Option<usize> },
}

/// The checksum of the end of an event's record, which is most of it and does not depend on its
/// `seq`. The committing task computes it, which takes work off the journal thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuffixChecksum(u32);

impl SuffixChecksum {
    pub(crate) fn of(event: &EncodedEvent) -> Self {
        Self(checksum(event.json_after_seq()))
    }
}

/// Encodes `event` as a record at the end of `out`.
pub(crate) fn append(
    out: &mut Vec<u8>,
    seed: RecordSeed,
    seq: Seq,
    event: &EncodedEvent,
    suffix_checksum: SuffixChecksum,
) {
    let start = out.len();
    let id = event.id().as_bytes();
    let id_flag = if event.id().as_uuid().is_some() { UUID_FLAG } else { 0 };
    let mut fixed = [0u8; FIXED_BYTES];
    fixed[8..16].copy_from_slice(&seq.0.to_le_bytes());
    fixed[16..24].copy_from_slice(&event.ts().0.to_le_bytes());
    fixed[24..26].copy_from_slice(&(short(id.len()) | id_flag).to_le_bytes());
    let key = event.key().map(|key| key.as_str().as_bytes());
    fixed[26..28].copy_from_slice(&key.map_or(NO_KEY, |key| short(key.len())).to_le_bytes());
    out.put_slice(&fixed);
    out.put_slice(id);
    out.put_slice(key.unwrap_or_default());
    event.write_json(seq, out);
    let record = &mut out[start..];
    let length = u32::try_from(record.len() - PREFIX_BYTES).expect("events are below 4 GiB");
    record[CHECKSUM_BYTES..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    let suffix_bytes = event.json_after_seq().len();
    let prefix_sum = checksum(&record[CHECKSUM_BYTES..record.len() - suffix_bytes]);
    let sum = combine(prefix_sum, suffix_checksum.0, suffix_bytes) ^ seed.0;
    record[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
}

fn short(length: usize) -> u16 {
    u16::try_from(length).expect("keys and ids have less than 32 KiB")
}

/// Decodes and verifies the record at the start of `buffer`.
pub(crate) fn decode(seed: RecordSeed, buffer: &[u8]) -> Result<Record<'_>, RecordFault> {
    let record = decode_trusted(buffer)?;
    if checksum(&record.bytes[CHECKSUM_BYTES..]) ^ seed.0 != u32_at(record.bytes, 0) {
        return Err(RecordFault::Damaged { plausible_bytes: Some(record.bytes.len()) });
    }
    Ok(record)
}

/// Decodes the record at the start of `buffer` without verifying its checksum, for a caller that has
/// verified one over more than the record.
pub(crate) fn decode_trusted(buffer: &[u8]) -> Result<Record<'_>, RecordFault> {
    let Some(length) = buffer.get(CHECKSUM_BYTES..PREFIX_BYTES) else {
        return Err(RecordFault::Truncated { needed: MIN_RECORD_BYTES });
    };
    let total = PREFIX_BYTES + u32_at(length, 0) as usize;
    if !(MIN_RECORD_BYTES..=MAX_RECORD_BYTES).contains(&total) {
        return Err(RecordFault::Damaged { plausible_bytes: None });
    }
    let Some(bytes) = buffer.get(..total) else {
        return Err(RecordFault::Truncated { needed: total });
    };
    let damaged = RecordFault::Damaged { plausible_bytes: Some(total) };
    let id_length = u16_at(bytes, 24);
    let key_length = u16_at(bytes, 26);
    let id_end = FIXED_BYTES + usize::from(id_length & !UUID_FLAG);
    let key_end = (key_length != NO_KEY).then(|| id_end + usize::from(key_length));
    if key_end.unwrap_or(id_end) > total {
        return Err(damaged);
    }
    Ok(Record {
        seq: Seq(u64_at(bytes, 8)),
        ts: Timestamp(u64_at(bytes, 16)),
        bytes,
        id_is_uuid: id_length & UUID_FLAG != 0,
        id_end,
        key_end,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Record<'_> {
    pub(crate) fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The id if it is a UUIDv7, whose value rises with time.
    pub(crate) fn time_ordered_id(&self) -> Option<u128> {
        let id: [u8; 16] = self.bytes[FIXED_BYTES..self.id_end].try_into().ok()?;
        (self.id_is_uuid && id[6] >> 4 == 7).then(|| u128::from_be_bytes(id))
    }

    /// The id; `None` only if the record is damaged in a way that its checksum missed.
    pub(crate) fn id(&self) -> Option<EventId> {
        let id = &self.bytes[FIXED_BYTES..self.id_end];
        if self.id_is_uuid {
            return Some(EventId::from_uuid(Uuid::from_slice(id).ok()?));
        }
        EventId::new(std::str::from_utf8(id).ok()?).ok()
    }

    /// Converts to an event whose JSON shares `buffer`, which has to contain this record.
    pub(crate) fn to_event(self, buffer: &Bytes) -> Option<StoredEvent> {
        let key = match self.key_end {
            Some(end) => {
                let key = std::str::from_utf8(&self.bytes[self.id_end..end]).ok()?;
                Some(Key::new(key).ok()?)
            }
            None => None,
        };
        let json = &self.bytes[self.key_end.unwrap_or(self.id_end)..];
        Some(StoredEvent {
            seq: self.seq,
            ts: self.ts,
            id: self.id()?,
            key,
            json: buffer.slice_ref(json),
        })
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::{Event, Headers, Payload};

    use super::*;

    fn event(id: &str, key: Option<&str>) -> EncodedEvent {
        Event {
            id: EventId::new(id).unwrap(),
            ts: Timestamp(123),
            topic: Topic::new("a.b").unwrap(),
            key: key.map(|key| Key::new(key).unwrap()),
            headers: Headers::default(),
            payload: Payload::parse(Bytes::from_static(b"[1,2]")).unwrap(),
            caused_by: vec![],
            tags: vec![],
            sid: None,
        }
        .encode()
    }

    fn seed() -> RecordSeed {
        RecordSeed::of(&Topic::new("a.b").unwrap())
    }

    #[test]
    fn round_trips() {
        for (id, key) in [
            ("0190f5e4-8d4b-7c3a-9f2e-0123456789ab", None),
            ("0190F5E4-8D4B-7C3A-9F2E-0123456789AB", Some("k")),
            ("sixteen bytes ok", Some("ключ")),
            ("x", None),
        ] {
            let event = event(id, key);
            let mut bytes = vec![0xAA; 3];
            append(&mut bytes, seed(), Seq(9), &event, SuffixChecksum::of(&event));
            let buffer = Bytes::from(bytes).slice(3..);
            let record = decode(seed(), &buffer).unwrap();
            assert_eq!(record.total_bytes(), buffer.len());
            let stored = record.to_event(&buffer).unwrap();
            let mut json = Vec::new();
            event.write_json(Seq(9), &mut json);
            assert_eq!(
                stored,
                StoredEvent {
                    seq: Seq(9),
                    ts: Timestamp(123),
                    id: EventId::new(id).unwrap(),
                    key: key.map(|key| Key::new(key).unwrap()),
                    json: json.into(),
                }
            );
        }
    }

    #[test]
    fn detects_every_flipped_bit_and_every_truncation() {
        let mut bytes = Vec::new();
        let event = event("some-id", Some("key"));
        append(&mut bytes, seed(), Seq(1), &event, SuffixChecksum::of(&event));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(seed(), &flipped).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(
                matches!(decode(seed(), &bytes[..cut]), Err(RecordFault::Truncated { needed }) if needed > cut)
            );
        }
    }

    #[test]
    fn rejects_a_record_of_another_topic() {
        let mut bytes = Vec::new();
        let event = event("some-id", None);
        append(&mut bytes, seed(), Seq(1), &event, SuffixChecksum::of(&event));
        let other = RecordSeed::of(&Topic::new("a.c").unwrap());
        assert!(decode(other, &bytes).is_err());
    }
}
