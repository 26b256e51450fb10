//! A file that an earlier export left: where it stopped, and whether it is one at all.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use memchr::memrchr;
use prombus_proto::Topic;
use prombus_proto::limits::MAX_EVENT_BYTES;

use super::destination::lock;
use crate::cli::stored_line::StoredLine;

/// How much is read at a time, from the end backwards.
const BLOCK_BYTES: u64 = 64 << 10;
/// A line is not longer than this.
const MAX_LINE_BYTES: u64 = MAX_EVENT_BYTES as u64 + 1;

/// A file whose last line is whole, and behind which writing goes on.
#[derive(Debug)]
pub(super) struct BegunFile {
    pub(super) file: File,
    /// Its last line; nothing if there is none.
    pub(super) last: Option<StoredLine>,
}

impl BegunFile {
    /// Nothing if there is no file. What is no export of `topic` is refused and stays as it is.
    pub(super) fn open(path: &Path, topic: &Topic) -> Result<Option<Self>, String> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        lock(path, &file)?;
        let not_ours = |which: &str| {
            let path = path.display();
            format!("{path} is no export of {topic}: {which}; it is left as it is")
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(not_ours("it is no ordinary file"));
        }
        let of_topic = |line: &[u8]| StoredLine::parse(line).filter(|line| line.topic == *topic);
        let end = newline_before(&file, metadata.len()).map_err(failed)?;
        let (whole, last) = match end {
            Search::Found(newline) => {
                let begin = match newline_before(&file, newline).map_err(failed)? {
                    Search::Found(newline) => newline + 1,
                    Search::NoMore => 0,
                    Search::TooFar => return Err(not_ours("its last line is too long")),
                };
                let last = read(&file, begin, newline).map_err(failed)?;
                let last = of_topic(&last)
                    .ok_or_else(|| not_ours("its last whole line is no event of that topic"))?;
                let first = first_line(&file).map_err(failed)?;
                of_topic(&first)
                    .ok_or_else(|| not_ours("its first line is no event of that topic"))?;
                (newline + 1, Some(last))
            }
            Search::NoMore => {
                let torn = read(&file, 0, metadata.len()).map_err(failed)?;
                if !StoredLine::may_begin_with(&torn) {
                    return Err(not_ours("it does not begin with an event"));
                }
                (0, None)
            }
            Search::TooFar => return Err(not_ours("its last line is too long")),
        };
        file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole))).map_err(failed)?;
        Ok(Some(Self { file, last }))
    }
}

enum Search {
    Found(u64),
    NoMore,
    /// Further away than a line is long.
    TooFar,
}

/// Where the last newline before `end` is.
fn newline_before(file: &File, end: u64) -> io::Result<Search> {
    let mut block_end = end;
    while block_end > 0 {
        if end - block_end > MAX_LINE_BYTES {
            return Ok(Search::TooFar);
        }
        let begin = block_end.saturating_sub(BLOCK_BYTES);
        if let Some(newline) = memrchr(b'\n', &read(file, begin, block_end)?) {
            return Ok(Search::Found(begin + newline as u64));
        }
        block_end = begin;
    }
    Ok(Search::NoMore)
}

fn read(file: &File, begin: u64, end: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(end - begin).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, begin)?;
    Ok(bytes)
}

fn first_line(mut file: &File) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    BufReader::new(file).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    Ok(line)
}

#[cfg(test)]
#[path = "begun_file_tests.rs"]
mod tests;
