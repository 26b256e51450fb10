//! Reads lines ahead on a separate thread.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;

use prombus_proto::limits::MAX_EVENT_BYTES;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::mpsc::{self, Receiver, Sender};

const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_LINES: usize = 500;
const CHUNKS_AHEAD: usize = 40;

/// Consecutive lines. Each includes its newline; the last line of the input may have none.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// End of each line in `bytes`.
    pub(super) line_ends: Vec<usize>,
    /// Each line that is an event has an id.
    pub(super) has_ids: bool,
}

/// Lines, or why the next line cannot be read.
type ReadResult = Result<Chunk, String>;

pub(super) struct LineReader {
    chunks: Receiver<ReadResult>,
}

impl LineReader {
    /// Starts reading a file; stdin if it is `None` or `-`.
    pub(super) fn open(file: Option<PathBuf>) -> Result<Self, String> {
        let file = file.filter(|path| path.as_os_str() != "-");
        let source: Box<dyn Read + Send> = match file {
            Some(path) => {
                let file = File::open(&path);
                Box::new(file.map_err(|error| format!("{}: {error}", path.display()))?)
            }
            None => {
                if io::stdin().is_terminal() {
                    eprintln!("prombus: type events as JSON, one per line; ctrl-d to finish");
                }
                Box::new(io::stdin())
            }
        };
        let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
        // Reading blocks, so it needs a thread, which ends with the process.
        std::thread::spawn(move || read(source, &sender));
        Ok(Self { chunks })
    }

    /// Waits for the next lines. Returns `None` at the end of the input. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<ReadResult> {
        self.chunks.recv().await
    }

    /// Returns the next lines without waiting: the outer `None` means that none are available yet.
    pub(super) fn try_next(&mut self) -> Option<Option<ReadResult>> {
        match self.chunks.try_recv() {
            Ok(lines) => Some(Some(lines)),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(None),
        }
    }
}

/// Reads until the end, an error, or the receiver is dropped.
fn read(source: impl Read, sender: &Sender<ReadResult>) {
    let mut source = BufReader::with_capacity(CHUNK_BYTES, source);
    loop {
        let (chunk, end) = read_chunk(&mut source);
        if !chunk.line_ends.is_empty() && sender.blocking_send(Ok(chunk)).is_err() {
            return;
        }
        match end {
            Ok(true) => {}
            Ok(false) => return,
            Err(reason) => {
                // The receiver may have been dropped.
                let _ = sender.blocking_send(Err(reason));
                return;
            }
        }
    }
}

/// Reads lines until the chunk is full or the next read would block. Returns `Ok(true)` if there may be more.
fn read_chunk<R: Read>(source: &mut BufReader<R>) -> (Chunk, Result<bool, String>) {
    let mut chunk = Chunk { has_ids: true, ..Chunk::default() };
    loop {
        let start = chunk.bytes.len();
        let mut limited = source.by_ref().take(MAX_EVENT_BYTES as u64 + 1);
        match limited.read_until(b'\n', &mut chunk.bytes) {
            Ok(0) => return (chunk, Ok(false)),
            Ok(length) if length > MAX_EVENT_BYTES => {
                chunk.bytes.truncate(start);
                let reason =
                    format!("longer than {MAX_EVENT_BYTES} bytes, the maximum size of an event");
                return (chunk, Err(reason));
            }
            Ok(_) => {}
            Err(error) => {
                chunk.bytes.truncate(start);
                return (chunk, Err(format!("cannot read: {error}")));
            }
        }
        chunk.has_ids &= has_id(&chunk.bytes[start..]);
        chunk.line_ends.push(chunk.bytes.len());
        let is_full = chunk.bytes.len() >= CHUNK_BYTES || chunk.line_ends.len() == CHUNK_LINES;
        if is_full || source.buffer().is_empty() {
            return (chunk, Ok(true));
        }
    }
}

/// Returns `true` if a line is blank or an event with an id. The server rejects other lines anyway.
fn has_id(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Wire {
        id: Option<IgnoredAny>,
    }
    let is_blank = line.iter().all(u8::is_ascii_whitespace);
    is_blank || serde_json::from_slice(line).is_ok_and(|wire: Wire| wire.id.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(source: impl Read) -> (Vec<Chunk>, Result<bool, String>) {
        let mut source = BufReader::with_capacity(CHUNK_BYTES, source);
        let mut chunks = Vec::new();
        loop {
            let (chunk, end) = read_chunk(&mut source);
            chunks.push(chunk);
            if end != Ok(true) {
                return (chunks, end);
            }
        }
    }

    #[test]
    fn splits_lines_without_losing_a_byte() {
        let text: String = (0..1700).map(|n| format!("{n} {}\n", "x".repeat(n))).collect();
        let text = text + "the last";
        let (chunks, end) = chunks(text.as_bytes());
        assert_eq!(end, Ok(false));
        let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
        assert_eq!(bytes, text.as_bytes());
        let lines: usize = chunks.iter().map(|chunk| chunk.line_ends.len()).sum();
        assert_eq!(lines, 1701);
        for chunk in &chunks {
            assert!(chunk.line_ends.len() <= CHUNK_LINES);
            assert!(chunk.bytes.len() < CHUNK_BYTES + 2000);
            assert_eq!(chunk.line_ends.last().copied().unwrap_or(0), chunk.bytes.len());
        }
    }

    #[test]
    fn an_oversized_line_fails_after_the_lines_before_it() {
        let text = format!("1\n2\n{}\n3\n", "x".repeat(MAX_EVENT_BYTES));
        let (chunks, end) = chunks(text.as_bytes());
        assert!(end.unwrap_err().contains("longer than 16777216 bytes"));
        let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
        assert_eq!(bytes, b"1\n2\n");
    }

    #[test]
    fn detects_lines_with_an_id() {
        for line in ["{\"payload\":{},\"id\":\"a\"}\n", "{\"id\":\"a\"}", " \r\n"] {
            assert!(has_id(line.as_bytes()), "{line}");
        }
        for line in ["{\"payload\":{\"id\":\"a\"}}", "{\"id\":null}", "{\"id\":\"a\"", "x"] {
            assert!(!has_id(line.as_bytes()), "{line}");
        }
    }
}
