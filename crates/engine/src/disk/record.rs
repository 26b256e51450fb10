//! An event as bytes, in the write-ahead log and in segments alike, so that moving one from there
//! to here is a copy.
//!
//! ```text
//! checksum u32 | length u32 | seq u64 | ts u64 | id length u16 | key length u16 | id | key | json
//! ```
//!
//! `length` counts what follows it. The checksum covers all behind itself, with the topic's mixed
//! in, so that a record that ended up in another topic's file does not fit. The top bit of the id
//! length says that the id is a UUID's 16 bytes.

pub(crate) mod walk;

use bytes::{BufMut, Bytes};
use prombus_proto::limits::{MAX_EVENT_BYTES, MAX_ID_BYTES, MAX_KEY_BYTES};
use prombus_proto::{EncodedEvent, EventId, Key, Seq, Timestamp, Topic};
use uuid::Uuid;

use crate::StoredEvent;
use crate::disk::checksum::{checksum, joined};

const CHECKSUM_BYTES: usize = 4;
const PREFIX_BYTES: usize = CHECKSUM_BYTES + 4;
pub(crate) const FIXED_BYTES: usize = PREFIX_BYTES + 8 + 8 + 2 + 2;
const UUID_FLAG: u16 = 0x8000;
const NO_KEY: u16 = 0xFFFF;

/// No record is longer.
pub(crate) const MAX_RECORD_BYTES: usize =
    FIXED_BYTES + MAX_ID_BYTES + MAX_KEY_BYTES + MAX_EVENT_BYTES;
/// No record is shorter: an id has a byte, and JSON at least `{}`.
pub(crate) const MIN_RECORD_BYTES: usize = FIXED_BYTES + 1 + 2;

/// What is mixed into the checksums of a topic's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordSeed(u32);

impl RecordSeed {
    pub(crate) fn of(topic: &Topic) -> Self {
        Self(checksum(topic.as_str().as_bytes()))
    }
}

/// A record found in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) seq: Seq,
    pub(crate) ts: Timestamp,
    bytes: &'a [u8],
    id_is_uuid: bool,
    id_end: usize,
    key_end: Option<usize>,
}

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFault {
    /// The buffer ends before the record does; it would have so many bytes.
    CutOff { needed: usize },
    /// The checksum does not fit. Where the length is believable, the next record is there.
    Damaged { believed_bytes: Option<usize> },
}

/// The checksum of the part of an event's record that does not depend on its `seq`, which is most
/// of it and its end. Taken by who commits the event, so that the journal, which every event has to
/// pass, has less to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndSum(u32);

impl EndSum {
    pub(crate) fn of(event: &EncodedEvent) -> Self {
        Self(checksum(event.json_after_seq()))
    }
}

/// Appends the record of `event` to `out`.
pub(crate) fn append(
    out: &mut Vec<u8>,
    seed: RecordSeed,
    seq: Seq,
    event: &EncodedEvent,
    end_sum: EndSum,
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
    let end_bytes = event.json_after_seq().len();
    let start_sum = checksum(&record[CHECKSUM_BYTES..record.len() - end_bytes]);
    let sum = joined(start_sum, end_sum.0, end_bytes) ^ seed.0;
    record[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
}

fn short(length: usize) -> u16 {
    u16::try_from(length).expect("keys and ids have less than 32 KiB")
}

/// The record at the beginning of `buffer`.
pub(crate) fn decode(seed: RecordSeed, buffer: &[u8]) -> Result<Record<'_>, RecordFault> {
    let record = decode_trusted(buffer)?;
    if checksum(&record.bytes[CHECKSUM_BYTES..]) ^ seed.0 != u32_at(record.bytes, 0) {
        return Err(RecordFault::Damaged { believed_bytes: Some(record.bytes.len()) });
    }
    Ok(record)
}

/// The same, where a checksum over more than the record has been found to fit.
pub(crate) fn decode_trusted(buffer: &[u8]) -> Result<Record<'_>, RecordFault> {
    let Some(length) = buffer.get(CHECKSUM_BYTES..PREFIX_BYTES) else {
        return Err(RecordFault::CutOff { needed: MIN_RECORD_BYTES });
    };
    let total = PREFIX_BYTES + u32_at(length, 0) as usize;
    if !(MIN_RECORD_BYTES..=MAX_RECORD_BYTES).contains(&total) {
        return Err(RecordFault::Damaged { believed_bytes: None });
    }
    let Some(bytes) = buffer.get(..total) else {
        return Err(RecordFault::CutOff { needed: total });
    };
    let damaged = RecordFault::Damaged { believed_bytes: Some(total) };
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

    /// The id where it is a UUID of version 7.
    pub(crate) fn time_ordered_id(&self) -> Option<u128> {
        let id: [u8; 16] = self.bytes[FIXED_BYTES..self.id_end].try_into().ok()?;
        (self.id_is_uuid && id[6] >> 4 == 7).then(|| u128::from_be_bytes(id))
    }

    /// The id, if it is one; a record whose checksum fits was written with one.
    pub(crate) fn id(&self) -> Option<EventId> {
        let id = &self.bytes[FIXED_BYTES..self.id_end];
        if self.id_is_uuid {
            return Some(EventId::from_uuid(Uuid::from_slice(id).ok()?));
        }
        EventId::new(std::str::from_utf8(id).ok()?).ok()
    }

    /// The event, its JSON shared with `buffer`, in which this record lies.
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
    fn what_went_in_comes_out() {
        for (id, key) in [
            ("0190f5e4-8d4b-7c3a-9f2e-0123456789ab", None),
            ("0190F5E4-8D4B-7C3A-9F2E-0123456789AB", Some("k")),
            ("sixteen bytes ok", Some("ключ")),
            ("x", None),
        ] {
            let event = event(id, key);
            let mut bytes = vec![0xAA; 3];
            append(&mut bytes, seed(), Seq(9), &event, EndSum::of(&event));
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
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let mut bytes = Vec::new();
        let event = event("some-id", Some("key"));
        append(&mut bytes, seed(), Seq(1), &event, EndSum::of(&event));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(seed(), &flipped).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(
                matches!(decode(seed(), &bytes[..cut]), Err(RecordFault::CutOff { needed }) if needed > cut)
            );
        }
    }

    #[test]
    fn a_record_of_another_topic_does_not_fit() {
        let mut bytes = Vec::new();
        let event = event("some-id", None);
        append(&mut bytes, seed(), Seq(1), &event, EndSum::of(&event));
        let other = RecordSeed::of(&Topic::new("a.c").unwrap());
        assert!(decode(other, &bytes).is_err());
    }
}
