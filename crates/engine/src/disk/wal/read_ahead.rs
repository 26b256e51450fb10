//! Reads a WAL file ahead of its consumer: while one chunk is checked, a thread reads the next.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use super::file::WalFile;

/// How many bytes are read at a time.
const CHUNK_BYTES: usize = 512 << 10;
/// Free space before each chunk for the unconsumed end of the previous one, which is usually less
/// than a frame.
const LEAD_BYTES: usize = 256 << 10;
/// The most chunks that wait to be consumed.
const CHUNKS_AHEAD: usize = 2;

/// The chunks of a WAL file in order, each preceded by the unconsumed end of the previous one.
pub(crate) struct WalChunks {
    read: Receiver<io::Result<WalChunk>>,
    used: Sender<Vec<u8>>,
    current: WalChunk,
}

/// A buffer with free space before `start`.
#[derive(Default)]
struct WalChunk {
    buffer: Vec<u8>,
    start: usize,
}

/// Passes the chunks of `range` to `consume` while a thread reads the next ones. The thread ends when
/// `consume` returns.
pub(crate) fn read_ahead<T>(
    file: &WalFile,
    range: Range<u64>,
    consume: impl FnOnce(WalChunks) -> io::Result<T>,
) -> io::Result<T> {
    let (full, read) = mpsc::sync_channel(CHUNKS_AHEAD);
    let (used, empty) = mpsc::channel();
    let chunks = WalChunks { read, used, current: WalChunk::default() };
    thread::scope(|scope| {
        thread::Builder::new()
            .name("prombus-read-ahead".to_owned())
            .spawn_scoped(scope, move || read_chunks(file, range, &full, &empty))?;
        consume(chunks)
    })
}

fn read_chunks(
    file: &WalFile,
    range: Range<u64>,
    full: &SyncSender<io::Result<WalChunk>>,
    empty: &Receiver<Vec<u8>>,
) {
    let mut offset = range.start;
    while offset < range.end {
        let end = range.end.min(offset + CHUNK_BYTES as u64);
        let mut buffer = empty.try_recv().unwrap_or_default();
        buffer.resize(LEAD_BYTES + usize::try_from(end - offset).unwrap_or(CHUNK_BYTES), 0);
        let chunk = file
            .read_exact(offset, &mut buffer[LEAD_BYTES..])
            .map(|()| WalChunk { buffer, start: LEAD_BYTES });
        let failed = chunk.is_err();
        // A send error means that the consumer stopped early.
        if full.send(chunk).is_err() || failed {
            return;
        }
        offset = end;
    }
}

impl WalChunks {
    /// The unconsumed end of the previous chunk and the current one.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.current.buffer[self.current.start..]
    }

    /// Appends the next chunk to the current bytes without the first `consumed`. Returns `false` and
    /// changes nothing if there is no next chunk.
    pub(crate) fn advance(&mut self, consumed: usize) -> io::Result<bool> {
        let Ok(next) = self.read.recv() else { return Ok(false) };
        let mut next = next?;
        let left = &self.bytes()[consumed..];
        match next.start.checked_sub(left.len()) {
            Some(start) => {
                next.buffer[start..next.start].copy_from_slice(left);
                next.start = start;
            }
            None => {
                let joined = [left, &next.buffer[next.start..]].concat();
                next = WalChunk { buffer: joined, start: 0 };
            }
        }
        let used = std::mem::replace(&mut self.current, next);
        // The reading thread may have ended already.
        let _ = self.used.send(used.buffer);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::storage::layout::Layout;

    fn file_of(content: &[u8], folder: &tempfile::TempDir) -> (WalFile, Range<u64>) {
        let layout = Layout::new(folder.path().to_owned());
        layout.create_folders().unwrap();
        let start = WalFile::first_frame_offset();
        let end = start + content.len() as u64;
        let file = WalFile::create(&layout, 1, end..=end, Arc::default()).unwrap();
        file.write_at(start, &[content]).unwrap();
        (file, start..end)
    }

    #[test]
    fn returns_all_bytes_in_order_whatever_is_left_over() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> =
            (0..4 * CHUNK_BYTES + 77).map(|i| (i % 251).to_le_bytes()[0]).collect();
        let (file, range) = file_of(&content, &folder);
        for left_over in [0, 1, LEAD_BYTES, LEAD_BYTES + 1, 3 * CHUNK_BYTES, 9 * CHUNK_BYTES] {
            let seen = read_ahead(&file, range.clone(), |mut chunks| {
                let (mut seen, mut consumed) = (Vec::new(), 0);
                while chunks.advance(consumed)? {
                    consumed = chunks.bytes().len().saturating_sub(left_over);
                    seen.extend_from_slice(&chunks.bytes()[..consumed]);
                }
                seen.extend_from_slice(&chunks.bytes()[consumed..]);
                Ok(seen)
            });
            assert!(seen.unwrap() == content, "{left_over} bytes left over");
        }
    }

    #[test]
    fn stops_reading_when_the_consumer_stops_early() {
        let folder = tempfile::tempdir().unwrap();
        let (file, range) = file_of(&vec![7; 9 * CHUNK_BYTES], &folder);
        let first = read_ahead(&file, range, |mut chunks| {
            chunks.advance(0)?;
            Ok(chunks.bytes().len())
        });
        assert_eq!(first.unwrap(), CHUNK_BYTES);
    }

    #[test]
    fn a_file_that_ends_too_early_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (file, range) = file_of(b"short", &folder);
        let read = read_ahead(&file, range.start..range.end + 1, |mut chunks| chunks.advance(0));
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
