//! Checks the content of a file as it passes by, in memory that does not depend on the size of the file.
//!
//! A file consists of units, each with a checksum: records, frames, pages, blocks, entries. A check takes
//! one unit after the other from what it was given so far.

mod entries;
mod frames;
mod ids;
mod records;
mod state;

use std::fmt;

use self::entries::Entries;
use self::frames::Frames;
use self::ids::Ids;
use self::records::Records;
use self::state::State;
use super::contents::{Content, Length};
use crate::disk::storage::file_header::{self, FileKind, HEADER_BYTES, HeaderFault};
use crate::disk::storage::file_header::{ID_RUN, PACK, SEGMENT, SPARSE_INDEX, STATE_RUN, WAL};
use crate::disk::storage::store_file::StoreFile;

/// The first damage in a file: what is behind it is not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContentFault {
    pub(crate) offset: u64,
    pub(crate) detail: String,
}

impl fmt::Display for ContentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.detail)
    }
}

/// What a file contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) events: u64,
    /// Entries of an index or of a sorted run.
    pub(crate) entries: u64,
    /// The number that the next frame of the write-ahead log has.
    pub(crate) next_frame: Option<u64>,
}

/// A check of the units of one kind of file.
trait Units {
    /// Checks the unit that `bytes` start with, at `offset` of the file, and returns its length, or 0 if
    /// not all of it is here yet. The error says what is wrong.
    fn take(&mut self, bytes: &[u8], offset: u64) -> Result<usize, String>;

    /// Checks that the file may end here. `rest` is what no unit was found in.
    fn finish(&mut self, rest: &[u8]) -> Result<Counted, String>;
}

/// Checks the content of one file.
pub(crate) struct ContentCheck {
    kind: FileKind,
    number: Option<u64>,
    length: Length,
    units: Box<dyn Units + Send>,
    /// What was given and not taken.
    buffer: Vec<u8>,
    /// The file offset at which the buffer starts.
    offset: u64,
    is_past_header: bool,
    fault: Option<ContentFault>,
}

impl ContentCheck {
    pub(crate) fn new(file: &StoreFile, content: &Content) -> Self {
        let (kind, number) = match (file, content) {
            // A WAL file keeps its header when it becomes a segment.
            (_, Content::Adopted { .. }) => (WAL, None),
            (StoreFile::Wal(number), _) => (WAL, Some(*number)),
            (StoreFile::Pack(number), _) => (PACK, Some(*number)),
            (StoreFile::StateRun(number), _) => (STATE_RUN, Some(*number)),
            (StoreFile::IdRun(number), _) => (ID_RUN, Some(*number)),
            (StoreFile::Segment(_, first), _) => (SEGMENT, Some(first.0)),
            (StoreFile::SparseIndex(_, first), _) => (SPARSE_INDEX, Some(first.0)),
        };
        let units: Box<dyn Units + Send> = match content {
            Content::Log { first_frame } => Box::new(Frames::starting_with(*first_frame)),
            Content::Adopted { .. } => Box::new(Frames::starting_with(None)),
            Content::Records(runs) => Box::new(Records::new(runs.clone())),
            Content::SparseIndex { entries } => Box::new(Entries::new(*entries)),
            Content::IdRun(info) => Box::new(Ids::new(info)),
            Content::StateRun(info) => Box::new(State::new(info)),
        };
        Self {
            kind,
            number,
            length: content.length(),
            units,
            buffer: Vec::new(),
            offset: 0,
            is_past_header: false,
            fault: None,
        }
    }

    /// Checks the next part of the file.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.fault.is_some() {
            return;
        }
        self.buffer.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let (rest, offset) = (&self.buffer[at..], self.offset + at as u64);
            let taken = match self.is_past_header {
                true => self.units.take(rest, offset),
                false => self.take_header(at),
            };
            match taken {
                Ok(0) => break,
                Ok(bytes) => at += bytes,
                Err(detail) => {
                    self.fault = Some(ContentFault { offset, detail });
                    self.buffer = Vec::new();
                    return;
                }
            }
        }
        self.buffer.drain(..at);
        self.offset += at as u64;
    }

    fn take_header(&mut self, at: usize) -> Result<usize, String> {
        let Some(header) = self.buffer[at..].get(..HEADER_BYTES) else { return Ok(0) };
        match file_header::decode(self.kind, header) {
            Ok(number) if self.number.is_some_and(|expected| number != expected) => {
                return Err("its header belongs to a file of another number".to_owned());
            }
            Ok(_) => {}
            Err(HeaderFault::Damaged(detail)) => return Err(detail.to_owned()),
            Err(HeaderFault::Newer { found, supported }) => {
                return Err(format!(
                    "it has format version {found}, but this version of prombus reads only up to \
                     {supported}"
                ));
            }
        }
        self.is_past_header = true;
        // Pages start behind the header, whose version says how.
        self.units.take(&self.buffer[at..at + HEADER_BYTES], 0).map(|_| HEADER_BYTES)
    }

    /// Ends the check. The error is the first damage.
    pub(crate) fn finish(mut self) -> Result<Counted, ContentFault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let end = self.offset + self.buffer.len() as u64;
        let fault = |detail| ContentFault { offset: self.offset, detail };
        let needed = match self.length {
            Length::Known(bytes) | Length::AtLeast(bytes) => bytes,
        };
        if end < needed {
            return Err(fault(format!("it ends after {end} of {needed} bytes")));
        }
        if !self.is_past_header {
            return Err(fault("the header is truncated".to_owned()));
        }
        self.units.finish(&self.buffer).map_err(fault)
    }
}
