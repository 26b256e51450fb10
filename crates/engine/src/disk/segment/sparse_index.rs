//! The sparse index of a segment: every few kilobytes, which event is there, how late the ones
//! before it are, and how new their ids.
//!
//! ```text
//! header | (seq u64 | offset u64 | latest ts before u64 | newest id before u128 | checksum u32 | 0 u32)…
//! ```
//!
//! All of these rise from entry to entry, whatever order times and ids came in: the first event of
//! a time or later, and a UUIDv7 that was newer than all before it, are found by halving.
//!
//! Searched in place by halving, so that it takes no memory however large the topic is. Each entry
//! has its own checksum: a damaged index is noticed, and the segment is read from its beginning.

use std::fs::File;
use std::os::unix::fs::FileExt;

use bytes::{Buf, BufMut};
use prombus_proto::{Seq, Timestamp};

use crate::disk::checksum::checksum;
use crate::disk::file_header::HEADER_BYTES;

/// How many bytes of records lie between two entries, at least.
pub(crate) const INTERVAL_BYTES: u64 = 4096;
pub(crate) const ENTRY_BYTES: usize = 48;

/// An event that can be found without reading those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) seq: Seq,
    pub(crate) offset: u64,
    /// The latest time of all events of this segment before this one.
    pub(crate) latest_ts_before: Timestamp,
    /// The newest UUIDv7 of all events of the topic before this one.
    pub(crate) newest_id_before: u128,
}

impl IndexEntry {
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u64_le(self.seq.0);
        out.put_u64_le(self.offset);
        out.put_u64_le(self.latest_ts_before.0);
        out.put_u128_le(self.newest_id_before);
        let sum = checksum(&out[start..]);
        out.put_u32_le(sum);
        out.put_u32_le(0);
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let (covered, mut rest) = bytes.split_at(40);
        if checksum(covered) != rest.get_u32_le() || rest.get_u32_le() != 0 {
            return None;
        }
        let mut fields = covered;
        Some(Self {
            seq: Seq(fields.get_u64_le()),
            offset: fields.get_u64_le(),
            latest_ts_before: Timestamp(fields.get_u64_le()),
            newest_id_before: fields.get_u128_le(),
        })
    }
}

/// The byte at which entry number `index` begins.
pub(crate) fn entry_offset(index: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(index) * ENTRY_BYTES as u64
}

/// The entry number `index`, or what is wrong with it.
pub(crate) fn entry(file: &File, index: u32) -> Result<IndexEntry, String> {
    let mut bytes = [0; ENTRY_BYTES];
    file.read_exact_at(&mut bytes, entry_offset(index))
        .map_err(|error| format!("entry {index}: {error}"))?;
    IndexEntry::decode(&bytes).ok_or_else(|| format!("entry {index}: the checksum does not fit"))
}

/// The last of the first `entries` entries for which `is_before` holds, which it does for none
/// behind one for which it does not.
pub(crate) fn last_before(
    file: &File,
    entries: u32,
    is_before: impl Fn(&IndexEntry) -> bool,
) -> Result<Option<IndexEntry>, String> {
    let mut best = None;
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = entry(file, middle)?;
        if is_before(&found) {
            best = Some(found);
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(best)
}

/// The last of the first `entries` entries that begins at `seq` or before it, or else the first, and the one
/// behind that.
pub(crate) fn row_of(
    file: &File,
    entries: u32,
    seq: Seq,
) -> Result<Option<(IndexEntry, Option<IndexEntry>)>, String> {
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        if entry(file, middle)?.seq <= seq {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if entries == 0 {
        return Ok(None);
    }
    let this = entry(file, low.saturating_sub(1))?;
    let behind = low.max(1);
    let next = if behind < entries { Some(entry(file, behind)?) } else { None };
    Ok(Some((this, next)))
}

/// The first of the first `entries` entries that lies behind `offset`.
pub(crate) fn first_behind(
    file: &File,
    entries: u32,
    offset: u64,
) -> Result<Option<IndexEntry>, String> {
    let (mut low, mut high) = (0, entries);
    let mut best = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let found = entry(file, middle)?;
        if found.offset > offset {
            best = Some(found);
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn index_of(entries: &[IndexEntry]) -> File {
        let mut bytes = vec![0; HEADER_BYTES];
        entries.iter().for_each(|entry| entry.append_to(&mut bytes));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn finds_by_halving() {
        let entries: Vec<_> = (1..=100u64)
            .map(|i| IndexEntry {
                seq: Seq(i * 10),
                offset: i * 5000,
                latest_ts_before: Timestamp(i / 3),
                newest_id_before: u128::from(i) << 90,
            })
            .collect();
        let file = index_of(&entries);
        for seq in 0..1100u64 {
            let expected = entries.iter().rfind(|entry| entry.seq.0 <= seq).copied();
            assert_eq!(last_before(&file, 100, |entry| entry.seq.0 <= seq), Ok(expected));
            let expected = entries.iter().find(|entry| entry.offset > seq * 500).copied();
            assert_eq!(first_behind(&file, 100, seq * 500), Ok(expected));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let entry = IndexEntry {
            seq: Seq(1),
            offset: 2,
            latest_ts_before: Timestamp(3),
            newest_id_before: 4,
        };
        let mut bytes = Vec::new();
        entry.append_to(&mut bytes);
        for bit in 0..ENTRY_BYTES * 8 {
            let mut flipped: [u8; ENTRY_BYTES] = bytes.clone().try_into().unwrap();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(IndexEntry::decode(&flipped), None, "bit {bit}");
        }
    }
}
