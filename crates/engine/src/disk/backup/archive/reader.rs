//! Decodes a backup, which may be cut off, damaged or hostile.
//!
//! Every length is checked before memory is taken for it, and nothing is passed on before its checksum
//! matches. The reader holds one block at a time.

use std::io::{self, Read};
use std::ops::Range;

use bytes::Buf;
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;
use zstd::bulk::Decompressor;

use super::{
    ArchiveHeader, BLOCK_HEAD_BYTES, BlockHead, BlockKind, HEADER_BYTES, MAGIC, MAX_CONTENT_BYTES,
    MAX_TEXT_BYTES, VERSION, block_checksum,
};
use crate::disk::storage::checksum::checksum;
use crate::disk::storage::store_file::MAX_NAME_BYTES;

/// Why a backup cannot be used.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The file is something else.
    #[error("it is not a backup of Prombus")]
    NotABackup,
    /// A newer version of Prombus wrote it.
    #[error(
        "it has backup format version {found}, but this version of prombus reads only up to \
         {supported}; upgrade prombus"
    )]
    NewerVersion {
        /// Its version.
        found: u16,
        /// The newest version that this build reads.
        supported: u16,
    },
    /// It ends too early.
    #[error("it is incomplete: it ends after {0} bytes, before the end of the backup")]
    Truncated(u64),
    /// Its content is not what was written.
    #[error("it is damaged at byte {offset}: {detail}")]
    Damaged {
        /// The offset of the block.
        offset: u64,
        /// What is wrong.
        detail: String,
    },
    /// Its checksums match, but no server writes such a backup.
    #[error("it is not a valid backup: {0}")]
    Invalid(String),
    /// The server gave up.
    #[error("the server could not complete it: {0}")]
    Aborted(String),
    /// It could not be read.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
}

/// What comes next in a backup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    File { name: &'a str, bytes: u64 },
    Content(&'a [u8]),
    FileEnd,
    Damaged { name: &'a str, detail: &'a str },
    End,
}

/// Reads a backup block by block.
pub(crate) struct ArchiveReader<R> {
    source: R,
    pub(crate) header: ArchiveHeader,
    /// Of everything before the block that is being read.
    whole: Xxh3,
    offset: u64,
    place: Place,
    payload: Vec<u8>,
    content: Vec<u8>,
    decompressor: Decompressor<'static>,
    files: u64,
    bytes: u64,
    damaged: u64,
}

/// Where in the backup it is.
enum Place {
    BetweenFiles,
    InFile { left: u64, content: Box<Xxh3> },
    AtEnd,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads the header.
    pub(crate) fn open(mut source: R) -> Result<Self, ArchiveError> {
        let mut header = [0; HEADER_BYTES];
        let found = read_up_to(&mut source, &mut header)?;
        if !header.starts_with(MAGIC) {
            return Err(ArchiveError::NotABackup);
        }
        let mut whole = Xxh3::new();
        whole.update(&header);
        let header = decode_header(&header[..found])?;
        Ok(Self {
            source,
            header,
            whole,
            offset: HEADER_BYTES as u64,
            place: Place::BetweenFiles,
            payload: Vec::new(),
            content: Vec::new(),
            decompressor: Decompressor::new()?,
            files: 0,
            bytes: 0,
            damaged: 0,
        })
    }

    /// The bytes of the backup so far.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of content so far.
    pub(crate) const fn content_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what comes next. After [`Item::End`] there is nothing.
    pub(crate) fn next(&mut self) -> Result<Item<'_>, ArchiveError> {
        let start = self.offset;
        let head = self.read_block()?;
        let found = self.accept(&head);
        let accepted = found.map_err(|detail| ArchiveError::Damaged { offset: start, detail })?;
        Ok(match accepted {
            Accepted::File { name, bytes } => Item::File { name: self.text(name, start)?, bytes },
            Accepted::Plain => Item::Content(&self.payload),
            Accepted::Compressed => Item::Content(&self.content),
            Accepted::FileEnd => Item::FileEnd,
            Accepted::Damaged { name, detail } => {
                Item::Damaged { name: self.text(name, start)?, detail: self.text(detail, start)? }
            }
            Accepted::End => {
                self.expect_nothing_more()?;
                Item::End
            }
            Accepted::Aborted => {
                let reason = self.text(0..self.payload.len(), start)?.to_owned();
                return Err(ArchiveError::Aborted(reason));
            }
        })
    }

    /// Reads a block into `payload` and checks its checksum.
    fn read_block(&mut self) -> Result<BlockHead, ArchiveError> {
        let start = self.offset;
        let damaged = |detail: &str| ArchiveError::Damaged { offset: start, detail: detail.into() };
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        let found = read_up_to(&mut self.source, &mut bytes)?;
        if found < BLOCK_HEAD_BYTES {
            return Err(ArchiveError::Truncated(start + found as u64));
        }
        let head = BlockHead::decode(&bytes).ok_or_else(|| damaged("no block starts here"))?;
        self.payload.resize(head.payload_bytes, 0);
        let found = read_up_to(&mut self.source, &mut self.payload)?;
        self.offset += (BLOCK_HEAD_BYTES + found) as u64;
        if found < head.payload_bytes {
            return Err(ArchiveError::Truncated(self.offset));
        }
        if block_checksum(&bytes, &[&self.payload]) != head.checksum {
            return Err(damaged("checksum mismatch"));
        }
        if head.kind != BlockKind::End {
            self.whole.update(&bytes);
            self.whole.update(&self.payload);
        }
        Ok(head)
    }

    /// Checks a block against what may come here. The error says what is wrong with it.
    fn accept(&mut self, head: &BlockHead) -> Result<Accepted, String> {
        let mut payload = &self.payload[..];
        let too_short = |_| "the block is too short".to_owned();
        match (head.kind, &mut self.place) {
            (BlockKind::File, Place::BetweenFiles) => {
                let bytes = payload.try_get_u64_le().map_err(too_short)?;
                if payload.len() > MAX_NAME_BYTES {
                    return Err("the name is too long".to_owned());
                }
                if self.files == self.header.files || bytes > self.header.bytes - self.bytes {
                    return Err("there is more than the header announced".to_owned());
                }
                self.files += 1;
                self.place = Place::InFile { left: bytes, content: Box::new(Xxh3::new()) };
                Ok(Accepted::File { name: 8..self.payload.len(), bytes })
            }
            (BlockKind::Plain, Place::InFile { left, content }) => {
                take(left, payload.len())?;
                content.update(payload);
                self.bytes += payload.len() as u64;
                Ok(Accepted::Plain)
            }
            (BlockKind::Compressed, Place::InFile { left, content }) => {
                let bytes = payload.try_get_u32_le().map_err(too_short)? as usize;
                take(left, bytes)?;
                // Whatever the frame says of itself, no more than this is written.
                self.content.resize(bytes, 0);
                let found = self
                    .decompressor
                    .decompress_to_buffer(payload, &mut self.content[..])
                    .map_err(|error| format!("cannot decompress it: {error}"))?;
                if found != bytes {
                    return Err(format!("{found} bytes were compressed instead of {bytes}"));
                }
                content.update(&self.content);
                self.bytes += bytes as u64;
                Ok(Accepted::Compressed)
            }
            (BlockKind::FileEnd, Place::InFile { left, content }) => {
                if *left > 0 {
                    return Err(format!("{left} bytes of the file are missing"));
                }
                if payload.try_get_u64_le().map_err(too_short)? != content.digest() {
                    return Err("the file has a checksum mismatch".to_owned());
                }
                self.place = Place::BetweenFiles;
                Ok(Accepted::FileEnd)
            }
            (BlockKind::Damaged, Place::BetweenFiles) => {
                let name = usize::from(payload.try_get_u16_le().map_err(too_short)?);
                if name > payload.len() || payload.len() > MAX_NAME_BYTES + MAX_TEXT_BYTES {
                    return Err("the text is too long".to_owned());
                }
                self.damaged += 1;
                Ok(Accepted::Damaged { name: 2..2 + name, detail: 2 + name..self.payload.len() })
            }
            (BlockKind::End, Place::BetweenFiles) => {
                let found = [self.files, self.bytes, self.damaged, self.whole.digest()];
                for found in found {
                    if payload.try_get_u64_le().map_err(too_short)? != found {
                        return Err("it has not the content that its end names".to_owned());
                    }
                }
                if self.files != self.header.files || self.bytes != self.header.bytes {
                    return Err("there is less than the header announced".to_owned());
                }
                self.place = Place::AtEnd;
                Ok(Accepted::End)
            }
            (BlockKind::Aborted, Place::BetweenFiles | Place::InFile { .. }) => {
                Ok(Accepted::Aborted)
            }
            _ => Err("a block is in the wrong place".to_owned()),
        }
    }

    fn text(&self, range: Range<usize>, offset: u64) -> Result<&str, ArchiveError> {
        let text = std::str::from_utf8(&self.payload[range]);
        text.map_err(|_| ArchiveError::Damaged { offset, detail: "text is not UTF-8".to_owned() })
    }

    fn expect_nothing_more(&mut self) -> Result<(), ArchiveError> {
        match read_up_to(&mut self.source, &mut [0])? {
            0 => Ok(()),
            _ => Err(ArchiveError::Damaged {
                offset: self.offset,
                detail: "something follows the end of the backup".to_owned(),
            }),
        }
    }
}

/// A block that was accepted, with the places of its parts in the payload.
enum Accepted {
    File { name: Range<usize>, bytes: u64 },
    Plain,
    Compressed,
    FileEnd,
    Damaged { name: Range<usize>, detail: Range<usize> },
    End,
    Aborted,
}

/// Counts content of a file.
fn take(left: &mut u64, bytes: usize) -> Result<(), String> {
    if bytes > MAX_CONTENT_BYTES {
        return Err("the block is too long".to_owned());
    }
    *left = left.checked_sub(bytes as u64).ok_or("the file is longer than announced")?;
    Ok(())
}

fn decode_header(bytes: &[u8]) -> Result<ArchiveHeader, ArchiveError> {
    let Some(mut fields) = bytes.get(MAGIC.len()..).filter(|_| bytes.len() == HEADER_BYTES) else {
        return Err(ArchiveError::Truncated(bytes.len() as u64));
    };
    let version = fields.get_u16_le();
    let zeros = (fields.get_u16_le(), fields.get_u32_le());
    let header = ArchiveHeader {
        files: fields.get_u64_le(),
        bytes: fields.get_u64_le(),
        moment: fields.get_u64_le(),
    };
    let sum = fields.get_u32_le();
    if sum != checksum(&bytes[..40]) || zeros != (0, 0) || fields.get_u32_le() != 0 {
        let detail = "the header has a checksum mismatch".to_owned();
        return Err(ArchiveError::Damaged { offset: 0, detail });
    }
    if version > VERSION || version == 0 {
        return Err(ArchiveError::NewerVersion { found: version, supported: VERSION });
    }
    Ok(header)
}

/// Fills `buffer` as far as there is something, and returns how far.
fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < buffer.len() {
        match source.read(&mut buffer[found..]) {
            Ok(0) => break,
            Ok(bytes) => found += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
