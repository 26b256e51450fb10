//! Lines, read ahead on a thread of their own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;

use prombus_proto::limits::MAX_EVENT_BYTES;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// A chunk is full with so much, and so many chunks are read ahead.
const CHUNK_BYTES: usize = 256 << 10;
const CHUNK_LINES: usize = 500;
const CHUNKS_AHEAD: usize = 40;

/// Some lines in a row, each with its newline, where it has one.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// Where each line ends.
    pub(super) line_ends: Vec<usize>,
    /// Whether each line that is an event has an id.
    pub(super) has_ids: bool,
}

/// Lines, or a sentence that says why the next one cannot be read.
type Lines = Result<Chunk, String>;

pub(super) struct Input {
    chunks: Receiver<Lines>,
}

impl Input {
    /// Begins to read.
    pub(super) fn open(file: Option<PathBuf>) -> Result<Self, String> {
        let file = file.filter(|path| path.as_os_str() != "-");
        let source: Box<dyn Read + Send> = match file {
            Some(path) => {
                let file = File::open(&path);
                Box::new(file.map_err(|error| format!("{}: {error}", path.display()))?)
            }
            None => {
                if io::stdin().is_terminal() {
                    eprintln!("prombus: type events as JSON, one a line; ctrl-d ends");
                }
                Box::new(io::stdin())
            }
        };
        let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
        // Reading blocks, so a thread does it. It ends with the process.
        std::thread::spawn(move || read(source, &sender));
        Ok(Self { chunks })
    }

    /// The next lines, when they come. Nothing is lost when they are not waited for to the end.
    pub(super) async fn next(&mut self) -> Option<Lines> {
        self.chunks.recv().await
    }

    /// The next lines if they are there already; the outer nothing says that they are not.
    pub(super) fn next_now(&mut self) -> Option<Option<Lines>> {
        match self.chunks.try_recv() {
            Ok(lines) => Some(Some(lines)),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(None),
        }
    }
}

/// Reads to the end, to what cannot be read, or until nobody wants more.
fn read(source: impl Read, sender: &Sender<Lines>) {
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
                // Who has gone need not know.
                let _ = sender.blocking_send(Err(reason));
                return;
            }
        }
    }
}

/// Lines until a chunk is full or the next one would have to be waited for; and whether there may
/// be more.
fn read_chunk<R: Read>(source: &mut BufReader<R>) -> (Chunk, Result<bool, String>) {
    let mut chunk = Chunk { has_ids: true, ..Chunk::default() };
    loop {
        let begin = chunk.bytes.len();
        let mut limited = source.by_ref().take(MAX_EVENT_BYTES as u64 + 1);
        match limited.read_until(b'\n', &mut chunk.bytes) {
            Ok(0) => return (chunk, Ok(false)),
            Ok(length) if length > MAX_EVENT_BYTES => {
                chunk.bytes.truncate(begin);
                let reason = format!("longer than {MAX_EVENT_BYTES} bytes, as no event is");
                return (chunk, Err(reason));
            }
            Ok(_) => {}
            Err(error) => {
                chunk.bytes.truncate(begin);
                return (chunk, Err(format!("cannot be read: {error}")));
            }
        }
        chunk.has_ids &= has_id(&chunk.bytes[begin..]);
        chunk.line_ends.push(chunk.bytes.len());
        let is_full = chunk.bytes.len() >= CHUNK_BYTES || chunk.line_ends.len() == CHUNK_LINES;
        if is_full || source.buffer().is_empty() {
            return (chunk, Ok(true));
        }
    }
}

/// Whether a line says its event's id. What is no event is refused anyway.
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
    fn lines_are_cut_where_they_end_and_no_byte_is_lost() {
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
    fn a_line_that_no_event_has_ends_it_behind_those_above() {
        let text = format!("1\n2\n{}\n3\n", "x".repeat(MAX_EVENT_BYTES));
        let (chunks, end) = chunks(text.as_bytes());
        assert!(end.unwrap_err().contains("longer than 16777216 bytes"));
        let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
        assert_eq!(bytes, b"1\n2\n");
    }

    #[test]
    fn knows_which_lines_have_an_id() {
        for line in ["{\"payload\":{},\"id\":\"a\"}\n", "{\"id\":\"a\"}", " \r\n"] {
            assert!(has_id(line.as_bytes()), "{line}");
        }
        for line in ["{\"payload\":{\"id\":\"a\"}}", "{\"id\":null}", "{\"id\":\"a\"", "x"] {
            assert!(!has_id(line.as_bytes()), "{line}");
        }
    }
}
