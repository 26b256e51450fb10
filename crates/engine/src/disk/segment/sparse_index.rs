//! The sparse index of a segment: one entry every few kilobytes, with the `seq` and offset of a
//! record, and the latest time and newest id of the events before it.
//!
//! ```text
//! header | (seq u64 | offset u64 | latest ts before u64 | newest id before u128 | checksum u32 | 0 u32)…
//! ```
//!
//! All four fields are non-decreasing from entry to entry, whatever order times and ids arrived in.
//! Binary search therefore finds the first event at or after a time, and a UUIDv7 that was newer than
//! all before it.
//!
//! The search runs on the file, so an index takes no memory however large the topic is. Each entry
//! has its own checksum: if one is damaged, the segment is read from its start.

use std::io;

use bytes::{Buf, BufMut};
use prombus_proto::{Seq, Timestamp};

use crate::disk::storage::checksum::checksum;
use crate::disk::storage::file_header::HEADER_BYTES;
use crate::disk::storage::file_system::File;

/// The minimum bytes of records between two entries.
pub(crate) const INTERVAL_BYTES: u64 = 4096;
pub(crate) const ENTRY_BYTES: usize = 48;

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) seq: Seq,
    pub(crate) offset: u64,
    /// The latest time of all events of the segment before this one.
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

    pub(crate) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
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

/// The file offset of entry number `index`.
pub(crate) fn entry_offset(index: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(index) * ENTRY_BYTES as u64
}

/// The bytes of an index with this many entries; without entries there is no file.
pub(crate) fn file_bytes(entries: u32) -> u64 {
    if entries == 0 { 0 } else { entry_offset(entries) }
}

/// Reads entry number `index`. The error says what is wrong with it.
pub(crate) fn entry(file: &File, index: u32) -> Result<IndexEntry, String> {
    let mut bytes = [0; ENTRY_BYTES];
    file.read_exact_at(&mut bytes, entry_offset(index))
        .map_err(|error| format!("entry {index}: {error}"))?;
    IndexEntry::decode(&bytes).ok_or_else(|| format!("entry {index}: checksum mismatch"))
}

/// Reads the first `entries` entries. `None` if one of them is damaged.
pub(crate) fn read_all(file: &File, entries: u32) -> io::Result<Option<Vec<IndexEntry>>> {
    let mut bytes = vec![0; entries as usize * ENTRY_BYTES];
    file.read_exact_at(&mut bytes, entry_offset(0))?;
    Ok(bytes.as_chunks().0.iter().map(IndexEntry::decode).collect())
}

/// Bisects the first `entries` entries. Returns the last one for which `is_before` holds and the first
/// one for which it does not. The predicate has to be monotonic: once false, it stays false.
pub(crate) fn bisect(
    file: &File,
    entries: u32,
    is_before: impl Fn(&IndexEntry) -> bool,
) -> Result<(Option<IndexEntry>, Option<IndexEntry>), String> {
    let (mut last_before, mut first_after) = (None, None);
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = entry(file, middle)?;
        if is_before(&found) {
            last_before = Some(found);
            low = middle + 1;
        } else {
            first_after = Some(found);
            high = middle;
        }
    }
    Ok((last_before, first_after))
}

/// Returns the first of the first `entries` entries after `offset`.
pub(crate) fn first_after(
    file: &File,
    entries: u32,
    offset: u64,
) -> Result<Option<IndexEntry>, String> {
    Ok(bisect(file, entries, |entry| entry.offset <= offset)?.1)
}

/// Returns the entry of the extent that `seq` belongs to, and the one after it. A `seq` before the
/// first extent belongs to the first.
pub(crate) fn extent_of(
    file: &File,
    entries: u32,
    seq: Seq,
) -> Result<Option<(IndexEntry, Option<IndexEntry>)>, String> {
    match bisect(file, entries, |entry| entry.seq <= seq)? {
        (Some(this), next) => Ok(Some((this, next))),
        (None, Some(first)) if entries > 1 => Ok(Some((first, Some(entry(file, 1)?)))),
        (None, first) => Ok(first.map(|first| (first, None))),
    }
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
        File::Os(file)
    }

    #[test]
    fn bisects_to_the_right_entry() {
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
            let after = entries.iter().find(|entry| entry.seq.0 > seq).copied();
            assert_eq!(bisect(&file, 100, |entry| entry.seq.0 <= seq), Ok((expected, after)));
            let expected = entries.iter().find(|entry| entry.offset > seq * 500).copied();
            assert_eq!(first_after(&file, 100, seq * 500), Ok(expected));
            let this = entries.iter().rposition(|entry| entry.seq.0 <= seq).unwrap_or(0);
            let expected = (entries[this], entries.get(this + 1).copied());
            assert_eq!(extent_of(&file, 100, Seq(seq)), Ok(Some(expected)));
        }
    }

    #[test]
    fn detects_every_flipped_bit() {
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
