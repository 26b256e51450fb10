//! Reading a log file ahead of who goes through it: while one part is checked, the next is read.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use crate::disk::wal::file::WalFile;

/// How much is read at a time.
const PART_BYTES: usize = 512 << 10;
/// Room before each part for what the one before it left over, which is mostly less than a frame.
const LEAD_BYTES: usize = 256 << 10;
/// How many parts wait, at most.
const PARTS_AHEAD: usize = 2;

/// The parts of a log file, one after the other, each behind what was left of the last.
pub(crate) struct WalParts {
    read: Receiver<io::Result<Part>>,
    used: Sender<Vec<u8>>,
    current: Part,
}

/// Some bytes behind room that is free.
#[derive(Default)]
struct Part {
    buffer: Vec<u8>,
    start: usize,
}

/// Hands the parts of `range` to `go_through` while a thread reads the next ones. The thread ends when
/// `go_through` does.
pub(crate) fn read_ahead<T>(
    file: &WalFile,
    range: Range<u64>,
    go_through: impl FnOnce(WalParts) -> io::Result<T>,
) -> io::Result<T> {
    let (full, read) = mpsc::sync_channel(PARTS_AHEAD);
    let (used, empty) = mpsc::channel();
    let parts = WalParts { read, used, current: Part::default() };
    thread::scope(|scope| {
        thread::Builder::new()
            .name("prombus-read-ahead".to_owned())
            .spawn_scoped(scope, move || read_parts(file, range, &full, &empty))?;
        go_through(parts)
    })
}

fn read_parts(
    file: &WalFile,
    range: Range<u64>,
    full: &SyncSender<io::Result<Part>>,
    empty: &Receiver<Vec<u8>>,
) {
    let mut offset = range.start;
    while offset < range.end {
        let end = range.end.min(offset + PART_BYTES as u64);
        let mut buffer = empty.try_recv().unwrap_or_default();
        buffer.resize(LEAD_BYTES + usize::try_from(end - offset).unwrap_or(PART_BYTES), 0);
        let part = file
            .read_exact(offset, &mut buffer[LEAD_BYTES..])
            .map(|()| Part { buffer, start: LEAD_BYTES });
        let failed = part.is_err();
        // Nobody there any more: what is left is not wanted.
        if full.send(part).is_err() || failed {
            return;
        }
        offset = end;
    }
}

impl WalParts {
    /// What is at hand now.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.current.buffer[self.current.start..]
    }

    /// Goes on to the next part, behind all of this one from `passed` on. `false` where there is none;
    /// then all stays as it is.
    pub(crate) fn advance(&mut self, passed: usize) -> io::Result<bool> {
        let Ok(next) = self.read.recv() else { return Ok(false) };
        let mut next = next?;
        let left = &self.bytes()[passed..];
        match next.start.checked_sub(left.len()) {
            Some(start) => {
                next.buffer[start..next.start].copy_from_slice(left);
                next.start = start;
            }
            None => {
                let joined = [left, &next.buffer[next.start..]].concat();
                next = Part { buffer: joined, start: 0 };
            }
        }
        let used = std::mem::replace(&mut self.current, next);
        // The reader may be done already.
        let _ = self.used.send(used.buffer);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::layout::Layout;

    fn file_of(content: &[u8], folder: &tempfile::TempDir) -> (WalFile, Range<u64>) {
        let layout = Layout::new(folder.path().to_owned());
        layout.create_folders().unwrap();
        let start = WalFile::first_frame_offset();
        let end = start + content.len() as u64;
        let file = WalFile::create(&layout, 1, end, Arc::default()).unwrap();
        file.write_at(start, &[content]).unwrap();
        (file, start..end)
    }

    #[test]
    fn all_is_seen_in_order_however_much_is_left_over() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> =
            (0..4 * PART_BYTES + 77).map(|i| (i % 251).to_le_bytes()[0]).collect();
        let (file, range) = file_of(&content, &folder);
        for left_over in [0, 1, LEAD_BYTES, LEAD_BYTES + 1, 3 * PART_BYTES, 9 * PART_BYTES] {
            let seen = read_ahead(&file, range.clone(), |mut parts| {
                let (mut seen, mut passed) = (Vec::new(), 0);
                while parts.advance(passed)? {
                    passed = parts.bytes().len().saturating_sub(left_over);
                    seen.extend_from_slice(&parts.bytes()[..passed]);
                }
                seen.extend_from_slice(&parts.bytes()[passed..]);
                Ok(seen)
            });
            assert!(seen.unwrap() == content, "{left_over} bytes left over");
        }
    }

    #[test]
    fn who_stops_early_ends_the_reading() {
        let folder = tempfile::tempdir().unwrap();
        let (file, range) = file_of(&vec![7; 9 * PART_BYTES], &folder);
        let first = read_ahead(&file, range, |mut parts| {
            parts.advance(0)?;
            Ok(parts.bytes().len())
        });
        assert_eq!(first.unwrap(), PART_BYTES);
    }

    #[test]
    fn a_file_that_ends_too_early_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (file, range) = file_of(b"short", &folder);
        let read = read_ahead(&file, range.start..range.end + 1, |mut parts| parts.advance(0));
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
