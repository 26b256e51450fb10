//! The header of every file: its kind, its format version and its number.
//!
//! ```text
//! "PROMBUS\n"  kind [4]  version u16  0 u16  number u64  checksum u32  0 u32     = 32 bytes
//! ```

use std::io;
use std::path::Path;

use bytes::{Buf, BufMut};

use crate::OpenError;
use crate::disk::storage::checksum::checksum;
use crate::disk::storage::faults::is_damage;
use crate::disk::storage::file_system::File;

const MAGIC: &[u8; 8] = b"PROMBUS\n";

pub(crate) const HEADER_BYTES: usize = 32;

/// A kind of file, and the newest format version that this program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileKind {
    tag: [u8; 4],
    pub(crate) version: u16,
}

pub(crate) const WAL: FileKind = FileKind { tag: *b"wal ", version: 3 };
pub(crate) const SEGMENT: FileKind = FileKind { tag: *b"seg ", version: 1 };
pub(crate) const SPARSE_INDEX: FileKind = FileKind { tag: *b"idx ", version: 1 };
pub(crate) const ID_RUN: FileKind = FileKind { tag: *b"ids ", version: 2 };
pub(crate) const STATE_RUN: FileKind = FileKind { tag: *b"kv  ", version: 1 };
pub(crate) const CATALOG: FileKind = FileKind { tag: *b"cat ", version: 6 };
pub(crate) const CATALOG_EDIT: FileKind = FileKind { tag: *b"edit", version: 2 };
pub(crate) const PACK: FileKind = FileKind { tag: *b"pack", version: 1 };

#[cfg(test)]
impl FileKind {
    /// The same kind, one version newer.
    pub(crate) const fn newer(self) -> Self {
        Self { version: self.version + 1, ..self }
    }
}

/// Why a file's header was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Newer { found: u16, supported: u16 },
    Damaged(&'static str),
}

/// Encodes the header of a new file. `number` identifies it among the files of its kind.
pub(crate) fn encode(kind: FileKind, number: u64) -> [u8; HEADER_BYTES] {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.put_slice(MAGIC);
    header.put_slice(&kind.tag);
    header.put_u16_le(kind.version);
    header.put_u16_le(0);
    header.put_u64_le(number);
    header.put_u32_le(checksum(&header));
    header.put_u32_le(0);
    header.try_into().expect("the fields above are 32 bytes")
}

/// Checks that `bytes` start with the header of a file of `kind` and returns its number.
pub(crate) fn decode(kind: FileKind, bytes: &[u8]) -> Result<u64, HeaderFault> {
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        return Err(HeaderFault::Damaged("the header is truncated"));
    };
    let (covered, mut rest) = header.split_at(24);
    if checksum(covered) != rest.get_u32_le() || rest.get_u32_le() != 0 {
        return Err(HeaderFault::Damaged("the header has a checksum mismatch"));
    }
    let mut fields = &covered[8..];
    let mut tag = [0; 4];
    fields.copy_to_slice(&mut tag);
    let version = fields.get_u16_le();
    if &covered[..8] != MAGIC || tag != kind.tag {
        return Err(HeaderFault::Damaged("the header belongs to another kind of file"));
    }
    if version > kind.version {
        return Err(HeaderFault::Newer { found: version, supported: kind.version });
    }
    fields.advance(2);
    Ok(fields.get_u64_le())
}

/// Reads and checks the header of an open file. A header on an unreadable medium is damaged.
pub(crate) fn read(file: &File, kind: FileKind) -> io::Result<Result<u64, HeaderFault>> {
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => Ok(decode(kind, &header)),
        Err(error) if is_damage(&error) => {
            Ok(Err(HeaderFault::Damaged("the header cannot be read")))
        }
        Err(error) => Err(error),
    }
}

/// The format version in a header that was decoded before.
pub(crate) fn version(header: &[u8]) -> u16 {
    header.get(12..14).map_or(0, |mut version| version.get_u16_le())
}

impl HeaderFault {
    pub(crate) fn into_open_error(self, path: &Path) -> OpenError {
        match self {
            HeaderFault::Newer { found, supported } => {
                OpenError::NewerFormat { path: path.to_owned(), found, supported }
            }
            HeaderFault::Damaged(detail) => {
                OpenError::Damaged { path: path.to_owned(), detail: detail.to_owned() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_every_flipped_bit() {
        let header = encode(WAL, 42);
        assert_eq!(decode(WAL, &header), Ok(42));
        assert_eq!(version(&header), WAL.version);
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = header;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(WAL, &flipped), Err(HeaderFault::Damaged(_))), "bit {bit}");
        }
    }

    #[test]
    fn distinguishes_another_kind_from_a_newer_version() {
        assert!(matches!(decode(SEGMENT, &encode(WAL, 1)), Err(HeaderFault::Damaged(_))));
        let newer = encode(WAL.newer(), 1);
        assert_eq!(decode(WAL, &newer), Err(HeaderFault::Newer { found: 4, supported: 3 }));
    }
}
