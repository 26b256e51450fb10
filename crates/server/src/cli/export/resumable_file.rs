//! The file of an earlier export: verifies that it is one, and finds where to continue.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use memchr::memrchr;
use prombus_proto::Topic;
use prombus_proto::limits::MAX_EVENT_BYTES;

use super::destination::lock;
use crate::cli::event_line::EventLine;

/// Bytes to read at a time, backwards from the end.
const BLOCK_BYTES: u64 = 64 << 10;
/// The longest possible line, newline included.
const MAX_LINE_BYTES: u64 = MAX_EVENT_BYTES as u64 + 1;

/// A file cut after its last complete line, positioned to append.
#[derive(Debug)]
pub(super) struct ResumableFile {
    pub(super) file: File,
    /// The last complete line; `None` if there is none.
    pub(super) last: Option<EventLine>,
}

impl ResumableFile {
    /// Opens and locks the file, and cuts off an incomplete last line. Returns `None` if there is no file.
    ///
    /// # Errors
    ///
    /// The file is not an export of `topic`; it is left unchanged.
    pub(super) fn open(path: &Path, topic: &Topic) -> Result<Option<Self>, String> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        lock(path, &file)?;
        let not_an_export = |reason: &str| {
            let path = path.display();
            format!("{path} is not an export of {topic}: {reason}; the file is unchanged")
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(not_an_export("it is not a regular file"));
        }
        let parse = |line: &[u8]| EventLine::parse(line).filter(|line| line.topic == *topic);
        let end = newline_before(&file, metadata.len()).map_err(failed)?;
        let (complete, last) = match end {
            Search::Found(newline) => {
                let start = match newline_before(&file, newline).map_err(failed)? {
                    Search::Found(newline) => newline + 1,
                    Search::NotFound => 0,
                    Search::TooFar => return Err(not_an_export("its last line is too long")),
                };
                let last = read(&file, start, newline).map_err(failed)?;
                let last = parse(&last).ok_or_else(|| {
                    not_an_export("its last complete line is not an event of that topic")
                })?;
                let first = first_line(&file).map_err(failed)?;
                parse(&first)
                    .ok_or_else(|| not_an_export("its first line is not an event of that topic"))?;
                (newline + 1, Some(last))
            }
            Search::NotFound => {
                let partial = read(&file, 0, metadata.len()).map_err(failed)?;
                if !EventLine::may_start_with(&partial) {
                    return Err(not_an_export("it does not start with an event"));
                }
                (0, None)
            }
            Search::TooFar => return Err(not_an_export("its last line is too long")),
        };
        file.set_len(complete)
            .and_then(|()| file.seek(SeekFrom::Start(complete)))
            .map_err(failed)?;
        Ok(Some(Self { file, last }))
    }
}

enum Search {
    Found(u64),
    NotFound,
    /// Farther away than a line can be long.
    TooFar,
}

/// Finds the last newline before `end`.
fn newline_before(file: &File, end: u64) -> io::Result<Search> {
    let mut block_end = end;
    while block_end > 0 {
        if end - block_end > MAX_LINE_BYTES {
            return Ok(Search::TooFar);
        }
        let start = block_end.saturating_sub(BLOCK_BYTES);
        if let Some(newline) = memrchr(b'\n', &read(file, start, block_end)?) {
            return Ok(Search::Found(start + newline as u64));
        }
        block_end = start;
    }
    Ok(Search::NotFound)
}

fn read(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(end - start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

fn first_line(mut file: &File) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    BufReader::new(file).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    Ok(line)
}

#[cfg(test)]
#[path = "resumable_file_tests.rs"]
mod tests;
