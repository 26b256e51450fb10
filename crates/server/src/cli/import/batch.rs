//! The lines of one request.

use bytes::{Bytes, BytesMut};

use super::input::Chunk;

/// What a request may have: a quarter of what the server takes, so that what it adds to events is
/// no question.
const MAX_BYTES: usize = 8 << 20;
pub(super) const MAX_LINES: usize = 20_000;

/// Lines in a row.
pub(super) struct Batch {
    /// The number of its first line in the whole input, from 1.
    first: u64,
    body: BytesMut,
    /// Where each line ends, with its newline.
    line_ends: Vec<usize>,
    has_ids: bool,
}

impl Batch {
    pub(super) fn new(first: u64) -> Self {
        Self { first, body: BytesMut::new(), line_ends: Vec::new(), has_ids: true }
    }

    /// Whether `chunk` fits. Something always fits into nothing.
    pub(super) fn takes(&self, chunk: &Chunk, most_lines: usize) -> bool {
        let lines = self.line_ends.len() + chunk.line_ends.len();
        let bytes = self.body.len() + chunk.bytes.len();
        self.is_empty() || (lines <= most_lines.min(MAX_LINES) && bytes <= MAX_BYTES)
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

    /// Only the first `count` lines are left.
    pub(super) fn keep_lines(&mut self, count: usize) {
        self.line_ends.truncate(count);
        self.body.truncate(self.line_ends.last().copied().unwrap_or(0));
    }

    pub(super) fn body(&self) -> Bytes {
        Bytes::copy_from_slice(&self.body)
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number of the last line.
    pub(super) fn last(&self) -> u64 {
        self.first + self.line_ends.len() as u64 - 1
    }

    /// Whether each event has an id: then nothing is stored twice that is sent twice.
    pub(super) fn has_ids(&self) -> bool {
        self.has_ids
    }

    /// As a person would call it.
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
    fn numbers_its_lines_and_can_keep_the_first_of_them() {
        let mut batch = Batch::new(11);
        batch.push(&chunk(&["a\n", "\n"], true));
        batch.push(&chunk(&["bb\n", "c"], true));
        assert_eq!((batch.name().as_str(), batch.has_ids()), ("lines 11 to 14", true));
        assert_eq!(batch.body(), "a\n\nbb\nc");
        batch.keep_lines(3);
        assert_eq!((batch.last(), batch.body()), (13, Bytes::from("a\n\nbb\n")));
        batch.push(&chunk(&["d\n"], false));
        assert!(!batch.has_ids());
        batch.keep_lines(0);
        assert!(batch.is_empty() && batch.body().is_empty());
    }

    #[test]
    fn takes_what_a_request_may_have_and_always_something() {
        let large = "x".repeat(MAX_BYTES);
        let mut batch = Batch::new(1);
        assert!(batch.takes(&chunk(&[&large, &large], true), 1));
        batch.push(&chunk(&["a\n"], true));
        assert!(batch.takes(&chunk(&["b\n", "c\n"], true), 3));
        assert!(!batch.takes(&chunk(&["b\n", "c\n"], true), 2));
        assert!(!batch.takes(&chunk(&[&large], true), 3));
        assert!(!batch.takes(&chunk(&vec!["\n"; MAX_LINES], true), usize::MAX));
    }
}
