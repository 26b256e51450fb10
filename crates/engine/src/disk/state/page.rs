//! A page of a sorted file: some entries in order, and a checksum.
//!
//! ```text
//! page:  checksum u32 | bytes u32 | kind u8 | 0 u8 | entries u16 | entry…
//! leaf entry:   key length u16 | key | version u64 | expires at u64 | value length u32 | value
//! inner entry:  key length u16 | first key | offset u64
//! ```
//!
//! Keys that were deleted have a value length of all ones. The checksum covers where the page
//! lies, so that one page in another's place does not fit.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::{Buf, BufMut, Bytes};
use prombus_proto::Timestamp;

use crate::disk::checksum::checksum;
use crate::disk::wal::frame::StateChange;
use crate::{StateKey, Version};

pub(super) const PAGE_HEAD_BYTES: usize = 12;
/// How large a page becomes; one large value makes a larger page.
pub(super) const PAGE_BYTES: usize = 4096;
const MAX_PAGE_BYTES: usize = 4 << 20;
const DELETED: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;

/// What a page's entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// Changes.
    Leaf,
    /// First keys of pages, and where those are.
    Inner,
}

/// A page that is being filled.
#[derive(Debug)]
pub(super) struct PageBuilder {
    kind: PageKind,
    bytes: Vec<u8>,
    entries: u16,
    first_key: Option<StateKey>,
}

impl PageBuilder {
    pub(super) fn new(kind: PageKind) -> Self {
        Self { kind, bytes: vec![0; PAGE_HEAD_BYTES], entries: 0, first_key: None }
    }

    pub(super) fn push_change(&mut self, change: &StateChange) {
        self.begin_entry(&change.key);
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
        self.begin_entry(first_key);
        self.bytes.put_u64_le(offset);
    }

    fn begin_entry(&mut self, key: &StateKey) {
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

    /// The page as it is written at `offset`, and its first key. The builder is empty again.
    pub(super) fn finish(&mut self, offset: u64) -> (Vec<u8>, StateKey) {
        let done = std::mem::replace(self, Self::new(self.kind));
        let mut bytes = done.bytes;
        let length = u32::try_from(bytes.len()).expect("a page is small");
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[8] = u8::from(done.kind == PageKind::Inner);
        bytes[10..12].copy_from_slice(&done.entries.to_le_bytes());
        let sum = page_checksum(offset, &bytes);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        (bytes, done.first_key.expect("only pages with entries are finished"))
    }
}

fn page_checksum(offset: u64, page: &[u8]) -> u32 {
    checksum(&page[4..]) ^ checksum(&offset.to_le_bytes())
}

/// A page that was read and checked.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) kind: PageKind,
    /// What its entries are made of.
    rest: Bytes,
    entries: u16,
    /// Where the next page begins.
    pub(super) end: u64,
}

impl Page {
    /// The page at `offset`, or what is wrong with it.
    pub(super) fn read(file: &File, offset: u64) -> Result<Self, String> {
        let fault = |detail: &dyn std::fmt::Display| format!("page at {offset}: {detail}");
        let mut buffer = vec![0; PAGE_BYTES + 512];
        let got = read_up_to(file, offset, &mut buffer).map_err(|error| fault(&error))?;
        let Some(mut head) = buffer.get(4..PAGE_HEAD_BYTES.min(got)).filter(|head| head.len() == 8)
        else {
            return Err(fault(&"cut off"));
        };
        let length = head.get_u32_le() as usize;
        if !(PAGE_HEAD_BYTES..=MAX_PAGE_BYTES).contains(&length) {
            return Err(fault(&"impossible length"));
        }
        if length > got {
            buffer.resize(length, 0);
            file.read_exact_at(&mut buffer, offset).map_err(|error| fault(&error))?;
        }
        buffer.truncate(length);
        let bytes = Bytes::from(buffer);
        let sum = (&bytes[..4]).get_u32_le();
        if page_checksum(offset, &bytes) != sum {
            return Err(fault(&"the checksum does not fit"));
        }
        Ok(Self {
            kind: if bytes[8] == 0 { PageKind::Leaf } else { PageKind::Inner },
            entries: (&bytes[10..12]).get_u16_le(),
            end: offset + length as u64,
            rest: bytes.slice(PAGE_HEAD_BYTES..),
        })
    }

    /// The next change of a leaf.
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

    /// The next child of an inner page: its first key and where it is.
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
