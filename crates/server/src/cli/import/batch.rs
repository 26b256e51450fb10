//! The lines of one request.

use bytes::{Bytes, BytesMut};

use super::line_reader::Chunk;

/// Maximum size of a request: a quarter of the server's limit, which leaves room for what it adds to events.
const MAX_BYTES: usize = 8 << 20;
pub(super) const MAX_LINES: usize = 20_000;

/// Consecutive lines.
pub(super) struct LineBatch {
    /// Number of the first line in the input, from 1.
    first: u64,
    body: BytesMut,
    /// End of each line in `body`, newline included.
    line_ends: Vec<usize>,
    has_ids: bool,
}

impl LineBatch {
    pub(super) fn new(first: u64) -> Self {
        Self { first, body: BytesMut::new(), line_ends: Vec::new(), has_ids: true }
    }

    /// Returns `true` if `chunk` fits. An empty batch takes any chunk.
    pub(super) fn fits(&self, chunk: &Chunk, max_lines: usize) -> bool {
        let lines = self.line_ends.len() + chunk.line_ends.len();
        let bytes = self.body.len() + chunk.bytes.len();
        self.is_empty() || (lines <= max_lines.min(MAX_LINES) && bytes <= MAX_BYTES)
    }

    pub(super) fn push(&mut self, chunk: &Chunk) {
        let before = self.body.len();
        self.body.extend_from_slice(&chunk.bytes);
        self.line_ends.extend(chunk.line_ends.iter().map(|end| before + end));
        self.has_ids &= chunk.has_ids;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.line_ends.is_empty()
    }

    /// Keeps only the first `count` lines.
    pub(super) fn truncate(&mut self, count: usize) {
        self.line_ends.truncate(count);
        self.body.truncate(self.line_ends.last().copied().unwrap_or(0));
    }

    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    pub(super) fn body(&self) -> Bytes {
        Bytes::copy_from_slice(&self.body)
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Number of the last line in the input.
    pub(super) fn last(&self) -> u64 {
        self.first + self.line_ends.len() as u64 - 1
    }

    /// Returns `true` if each event has an id, so that resending stores nothing twice.
    pub(super) fn has_ids(&self) -> bool {
        self.has_ids
    }

    /// The name for messages.
    pub(super) fn name(&self) -> String {
        format!("lines {} to {}", self.first, self.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(lines: &[&str], has_ids: bool) -> Chunk {
        let mut chunk = Chunk { has_ids, ..Chunk::default() };
        for line in lines {
            chunk.bytes.extend_from_slice(line.as_bytes());
            chunk.line_ends.push(chunk.bytes.len());
        }
        chunk
    }

    #[test]
    fn numbers_its_lines_and_truncates() {
        let mut batch = LineBatch::new(11);
        batch.push(&chunk(&["a\n", "\n"], true));
        batch.push(&chunk(&["bb\n", "c"], true));
        assert_eq!((batch.name().as_str(), batch.has_ids()), ("lines 11 to 14", true));
        assert_eq!(batch.body(), "a\n\nbb\nc");
        batch.truncate(3);
        assert_eq!((batch.last(), batch.body()), (13, Bytes::from("a\n\nbb\n")));
        batch.push(&chunk(&["d\n"], false));
        assert!(!batch.has_ids());
        batch.truncate(0);
        assert!(batch.is_empty() && batch.body().is_empty());
    }

    #[test]
    fn limits_lines_and_bytes_but_accepts_any_first_chunk() {
        let large = "x".repeat(MAX_BYTES);
        let mut batch = LineBatch::new(1);
        assert!(batch.fits(&chunk(&[&large, &large], true), 1));
        batch.push(&chunk(&["a\n"], true));
        assert!(batch.fits(&chunk(&["b\n", "c\n"], true), 3));
        assert!(!batch.fits(&chunk(&["b\n", "c\n"], true), 2));
        assert!(!batch.fits(&chunk(&[&large], true), 3));
        assert!(!batch.fits(&chunk(&vec!["\n"; MAX_LINES], true), usize::MAX));
    }
}
