//! Encodes a backup.

use std::io;

use bytes::BufMut;
use xxhash_rust::xxh3::Xxh3;
use zstd::bulk::Compressor;

use super::{ArchiveHeader, BlockHead, BlockKind, MAX_CONTENT_BYTES, MAX_TEXT_BYTES};

/// Half the size of an event costs a third of the processor time that level 1 takes.
const COMPRESSION_LEVEL: i32 = -3;

/// Encodes a backup into a buffer, from which the caller takes what is finished.
pub(crate) struct ArchiveWriter {
    out: Vec<u8>,
    /// Of everything encoded so far.
    whole: Xxh3,
    /// Of the content of the open file.
    content: Xxh3,
    compressor: Compressor<'static>,
    compressed: Vec<u8>,
    files: u64,
    bytes: u64,
    damaged: u64,
}

impl ArchiveWriter {
    pub(crate) fn new(header: ArchiveHeader) -> io::Result<Self> {
        let mut writer = Self {
            out: Vec::new(),
            whole: Xxh3::new(),
            content: Xxh3::new(),
            compressor: Compressor::new(COMPRESSION_LEVEL)?,
            compressed: Vec::new(),
            files: 0,
            bytes: 0,
            damaged: 0,
        };
        let header = header.encode();
        writer.whole.update(&header);
        writer.out.extend_from_slice(&header);
        Ok(writer)
    }

    /// Begins a file whose content has `bytes` bytes.
    pub(crate) fn file(&mut self, name: &str, bytes: u64) {
        self.files += 1;
        self.content = Xxh3::new();
        self.block(BlockKind::File, &[&bytes.to_le_bytes(), name.as_bytes()]);
    }

    /// Adds to the content of the file.
    pub(crate) fn content(&mut self, content: &[u8]) -> io::Result<()> {
        for part in content.chunks(MAX_CONTENT_BYTES) {
            self.content.update(part);
            self.bytes += part.len() as u64;
            let mut compressed = std::mem::take(&mut self.compressed);
            compressed.resize(zstd::zstd_safe::compress_bound(MAX_CONTENT_BYTES), 0);
            let length = self.compressor.compress_to_buffer(part, &mut compressed[..])?;
            if length + 4 < part.len() {
                let bytes = u32::try_from(part.len()).expect("a block is short");
                self.block(BlockKind::Compressed, &[&bytes.to_le_bytes(), &compressed[..length]]);
            } else {
                self.block(BlockKind::Plain, &[part]);
            }
            self.compressed = compressed;
        }
        Ok(())
    }

    pub(crate) fn file_end(&mut self) {
        let sum = self.content.digest();
        self.block(BlockKind::FileEnd, &[&sum.to_le_bytes()]);
    }

    /// Records that a file is damaged.
    pub(crate) fn damaged(&mut self, name: &str, detail: &str) {
        self.damaged += 1;
        let length = u16::try_from(name.len()).expect("a name is short");
        let detail = shorten(detail);
        self.block(
            BlockKind::Damaged,
            &[&length.to_le_bytes(), name.as_bytes(), detail.as_bytes()],
        );
    }

    pub(crate) fn end(&mut self) {
        let mut payload = Vec::with_capacity(32);
        payload.put_u64_le(self.files);
        payload.put_u64_le(self.bytes);
        payload.put_u64_le(self.damaged);
        payload.put_u64_le(self.whole.digest());
        self.block(BlockKind::End, &[&payload]);
    }

    /// Ends the backup without an end: whoever reads it finds the reason.
    pub(crate) fn aborted(&mut self, reason: &str) {
        self.block(BlockKind::Aborted, &[shorten(reason).as_bytes()]);
    }

    fn block(&mut self, kind: BlockKind, payload: &[&[u8]]) {
        let start = self.out.len();
        self.out.extend_from_slice(&BlockHead::encode(kind, payload));
        payload.iter().for_each(|part| self.out.extend_from_slice(part));
        self.whole.update(&self.out[start..]);
    }

    /// How much is encoded and was not taken.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Takes what is encoded.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

fn shorten(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}
