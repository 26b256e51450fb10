//! A page of a state run: sorted entries and a checksum.
//!
//! ```text
//! page:  checksum u32 | bytes u32 | kind u8 | 0 u8 | entries u16 | entry…
//! leaf entry:   key length u16 | key | version u64 | expires at u64 | value length u32 | value
//! inner entry:  key length u16 | first key | offset u64
//! ```
//!
//! A deleted key has a value length of all ones. The checksum covers the page's offset.

use std::io;

use bytes::{Buf, BufMut, Bytes};
use prombus_proto::Timestamp;

use super::change::StateChange;
use crate::disk::sorted_runs::{RunFault, page_checksum};
use crate::disk::storage::file_system::File;
use crate::{StateKey, Version};

pub(super) const PAGE_HEAD_BYTES: usize = 12;
/// The size at which a page is closed; a large value makes it larger.
pub(super) const PAGE_BYTES: usize = 4096;
pub(crate) const MAX_PAGE_BYTES: usize = 4 << 20;
const DELETED: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;

/// What the entries of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatePageKind {
    /// State changes.
    Leaf,
    /// The first keys and offsets of other pages.
    Inner,
}

/// Builds a page.
#[derive(Debug)]
pub(super) struct StatePageBuilder {
    kind: StatePageKind,
    bytes: Vec<u8>,
    entries: u16,
    first_key: Option<StateKey>,
}

impl StatePageBuilder {
    pub(super) fn new(kind: StatePageKind) -> Self {
        Self { kind, bytes: vec![0; PAGE_HEAD_BYTES], entries: 0, first_key: None }
    }

    pub(super) fn push_change(&mut self, change: &StateChange) {
        self.start_entry(&change.key);
        self.bytes.put_u64_le(change.version.0);
        match &change.put {
            Some((value, expires_at)) => {
                self.bytes.put_u64_le(expires_at.map_or(NEVER, |at| at.0));
                self.bytes.put_u32_le(u32::try_from(value.len()).expect("values are below 4 GiB"));
                self.bytes.put_slice(value);
            }
            None => {
                self.bytes.put_u64_le(NEVER);
                self.bytes.put_u32_le(DELETED);
            }
        }
    }

    pub(super) fn push_child(&mut self, first_key: &StateKey, offset: u64) {
        self.start_entry(first_key);
        self.bytes.put_u64_le(offset);
    }

    fn start_entry(&mut self, key: &StateKey) {
        let length = u16::try_from(key.as_bytes().len()).expect("keys are below 64 KiB");
        self.bytes.put_u16_le(length);
        self.bytes.put_slice(key.as_bytes());
        self.entries += 1;
        self.first_key.get_or_insert_with(|| key.clone());
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= PAGE_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the page, encoded for `offset`, and its first key. The builder starts over.
    pub(super) fn finish(&mut self, offset: u64) -> (Vec<u8>, StateKey) {
        let done = std::mem::replace(self, Self::new(self.kind));
        let mut bytes = done.bytes;
        let length = u32::try_from(bytes.len()).expect("a page is small");
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[8] = u8::from(done.kind == StatePageKind::Inner);
        bytes[10..12].copy_from_slice(&done.entries.to_le_bytes());
        let sum = page_checksum(offset, &bytes);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        (bytes, done.first_key.expect("only a page with entries is finished"))
    }
}

/// A page that was read and verified. Taking entries consumes it.
#[derive(Clone, Debug)]
pub(crate) struct StatePage {
    pub(crate) kind: StatePageKind,
    /// The entries that were not taken yet.
    rest: Bytes,
    entries: u16,
    /// The offset of the next page.
    pub(super) end: u64,
}

impl StatePage {
    /// Reads the page at `offset`.
    pub(super) fn read(file: &File, offset: u64) -> Result<Self, RunFault> {
        let damaged = |detail: &str| RunFault::Damaged(format!("page at {offset}: {detail}"));
        let failed = |error| RunFault::of_read(&format!("page at {offset}"), error);
        let mut buffer = vec![0; PAGE_BYTES + 512];
        let got = read_up_to(file, offset, &mut buffer).map_err(failed)?;
        let Some(mut head) = buffer.get(4..PAGE_HEAD_BYTES.min(got)).filter(|head| head.len() == 8)
        else {
            return Err(damaged("truncated"));
        };
        let length = head.get_u32_le() as usize;
        if !(PAGE_HEAD_BYTES..=MAX_PAGE_BYTES).contains(&length) {
            return Err(damaged("impossible length"));
        }
        if length > got {
            buffer.resize(length, 0);
            file.read_exact_at(&mut buffer, offset).map_err(failed)?;
        }
        buffer.truncate(length);
        Self::decode(&Bytes::from(buffer), offset).map_err(damaged)
    }

    /// Decodes the page that `bytes` start with, read at `offset`.
    pub(crate) fn decode(bytes: &Bytes, offset: u64) -> Result<Self, &'static str> {
        let length = bytes.get(4..8).ok_or("truncated")?.get_u32_le() as usize;
        if !(PAGE_HEAD_BYTES..=MAX_PAGE_BYTES).contains(&length) {
            return Err("impossible length");
        }
        if length > bytes.len() {
            return Err("truncated");
        }
        let bytes = bytes.slice(..length);
        let sum = (&bytes[..4]).get_u32_le();
        if page_checksum(offset, &bytes) != sum {
            return Err("checksum mismatch");
        }
        Ok(Self {
            kind: if bytes[8] == 0 { StatePageKind::Leaf } else { StatePageKind::Inner },
            entries: (&bytes[10..12]).get_u16_le(),
            end: offset + length as u64,
            rest: bytes.slice(PAGE_HEAD_BYTES..),
        })
    }

    /// How many entries were not taken yet.
    pub(crate) const fn entries(&self) -> u16 {
        self.entries
    }

    /// Takes the next change of a leaf.
    pub(super) fn take_change(&mut self) -> Option<StateChange> {
        let key = self.take_key()?;
        let version = Version(self.rest.try_get_u64_le().ok()?);
        let expires_at = self.rest.try_get_u64_le().ok()?;
        let length = self.rest.try_get_u32_le().ok()?;
        let put = if length == DELETED {
            None
        } else {
            let value = self.take_bytes(length as usize)?;
            Some((value, (expires_at != NEVER).then_some(Timestamp(expires_at))))
        };
        Some(StateChange { key, version, put })
    }

    /// Takes the next child of an inner page: its first key and its offset.
    pub(super) fn take_child(&mut self) -> Option<(StateKey, u64)> {
        let key = self.take_key()?;
        Some((key, self.rest.try_get_u64_le().ok()?))
    }

    fn take_key(&mut self) -> Option<StateKey> {
        self.entries = self.entries.checked_sub(1)?;
        let length = usize::from(self.rest.try_get_u16_le().ok()?);
        StateKey::new(self.take_bytes(length)?).ok()
    }

    fn take_bytes(&mut self, length: usize) -> Option<Bytes> {
        (self.rest.len() >= length).then(|| self.rest.split_to(length))
    }
}

fn read_up_to(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
