//! The format of a backup: the files of a store one after the other, compressed, in blocks.
//!
//! ```text
//! header | block… | end block
//! header: "PROMBAK\n" | version u16 | 0 u16 | 0 u32 | files u64 | bytes u64 | moment u64
//!         | checksum u32 | 0 u32                                                   = 48 bytes
//! block:  kind u8 | 0 [3] | length u32 | checksum u32 | payload [length]
//! ```
//!
//! The checksum of the header, a CRC-32C, covers what is before it; that of a block covers the kind, the
//! length and the payload. `files` and `bytes` count what follows, before compression; `moment` is when the
//! backup was taken, in Unix milliseconds. The kinds of blocks, in the order in which they occur:
//!
//! ```text
//! 1 file        bytes u64 | name                    a file begins; the first one is "catalog"
//! 2 plain       content                             at most 1 MiB of the file
//! 3 compressed  bytes u32 | zstd frame              the same, compressed; `bytes` is its length before
//! 4 file end    xxh3 u64                            of the whole content of the file
//! 5 damaged     name length u16 | name | detail     the file before, or one that is missing, is damaged
//! 6 end         files u64 | bytes u64 | damaged u64 | xxh3 u64
//! 7 aborted     reason                              instead of the end: the backup is of no use
//! ```
//!
//! The last xxh3 covers everything before its block, the header included. Without an end block the file was
//! cut off. Nothing follows it.

pub(crate) mod reader;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use bytes::{Buf, BufMut};

use crate::disk::storage::checksum::checksum;

const MAGIC: &[u8; 8] = b"PROMBAK\n";
/// The newest version that this program reads, and the one that it writes.
pub(crate) const VERSION: u16 = 1;
const HEADER_BYTES: usize = 48;
const BLOCK_HEAD_BYTES: usize = 12;
/// The most content in a block.
pub(crate) const MAX_CONTENT_BYTES: usize = 1 << 20;
/// The longest payload: incompressible content is stored as it is, so nothing is longer.
const MAX_PAYLOAD_BYTES: usize = MAX_CONTENT_BYTES + 64;
/// The longest text that says what is damaged or why a backup was aborted.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// The name of the first file.
pub(crate) const CATALOG_NAME: &str = "catalog";

/// What a backup says about itself before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveHeader {
    pub(crate) files: u64,
    /// Of all files, before compression.
    pub(crate) bytes: u64,
    /// In Unix milliseconds.
    pub(crate) moment: u64,
}

impl ArchiveHeader {
    fn encode(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_u16_le(VERSION);
        out.put_u16_le(0);
        out.put_u32_le(0);
        out.put_u64_le(self.files);
        out.put_u64_le(self.bytes);
        out.put_u64_le(self.moment);
        out.put_u32_le(checksum(&out));
        out.put_u32_le(0);
        out
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    File,
    Plain,
    Compressed,
    FileEnd,
    Damaged,
    End,
    Aborted,
}

impl BlockKind {
    const ALL: [Self; 7] = [
        Self::File,
        Self::Plain,
        Self::Compressed,
        Self::FileEnd,
        Self::Damaged,
        Self::End,
        Self::Aborted,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    fn code(self) -> u8 {
        self as u8 + 1
    }
}

/// The head of a block, which is followed by its payload.
#[derive(Clone, Copy, Debug)]
struct BlockHead {
    kind: BlockKind,
    payload_bytes: usize,
    checksum: u32,
}

impl BlockHead {
    fn encode(kind: BlockKind, payload: &[&[u8]]) -> [u8; BLOCK_HEAD_BYTES] {
        let bytes: usize = payload.iter().map(|part| part.len()).sum();
        debug_assert!(bytes <= MAX_PAYLOAD_BYTES);
        let mut head = [0; BLOCK_HEAD_BYTES];
        head[0] = kind.code();
        let length = u32::try_from(bytes).expect("a payload is short");
        head[4..8].copy_from_slice(&length.to_le_bytes());
        let sum = block_checksum(&head, payload);
        head[8..].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// Returns `None` if no block starts like that.
    fn decode(mut head: &[u8]) -> Option<Self> {
        let (kind, zeros) = (BlockKind::from_code(head.try_get_u8().ok()?)?, head.get(..3)?);
        let is_zero = zeros == [0; 3];
        head.advance(3);
        let payload_bytes = head.try_get_u32_le().ok()? as usize;
        let checksum = head.try_get_u32_le().ok()?;
        (is_zero && payload_bytes <= MAX_PAYLOAD_BYTES).then_some(Self {
            kind,
            payload_bytes,
            checksum,
        })
    }
}

fn block_checksum(head: &[u8], payload: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&head[..8]);
    payload.iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).expect("a checksum of 32 bits")
}
