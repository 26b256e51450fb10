//! The entries of a sparse index.

use prombus_proto::Seq;

use super::{Counted, Units};
use crate::disk::segment::sparse_index::{ENTRY_BYTES, IndexEntry};

pub(super) struct Entries {
    expected: u32,
    found: u32,
    last: Option<(Seq, u64)>,
}

impl Entries {
    pub(super) fn new(expected: u32) -> Self {
        Self { expected, found: 0, last: None }
    }
}

impl Units for Entries {
    fn take(&mut self, bytes: &[u8], offset: u64) -> Result<usize, String> {
        // The header, or what a later checkpoint appended.
        if offset == 0 || self.found == self.expected {
            return Ok(if offset == 0 { 0 } else { bytes.len() });
        }
        let Some(entry) = bytes.first_chunk::<ENTRY_BYTES>() else { return Ok(0) };
        let number = self.found;
        let entry = IndexEntry::decode(entry)
            .ok_or_else(|| format!("entry {number} has a checksum mismatch"))?;
        let key = (entry.seq, entry.offset);
        if self.last.is_some_and(|last| last.0 >= key.0 || last.1 >= key.1) {
            return Err(format!("entry {number} is out of order"));
        }
        self.last = Some(key);
        self.found += 1;
        Ok(ENTRY_BYTES)
    }

    fn finish(&mut self, _rest: &[u8]) -> Result<Counted, String> {
        match self.found == self.expected {
            true => Ok(Counted { entries: self.found.into(), ..Counted::default() }),
            false => Err(format!("{} of {} entries are there", self.found, self.expected)),
        }
    }
}
