//! Iterates over the records in a byte range of a file, and finds the next readable one after damage.

use std::io;

use bytes::Bytes;
use prombus_proto::Seq;

use super::{RecordFault, RecordSeed};
use crate::StoredEvent;
use crate::disk::storage::faults::is_damage;

/// A byte range of a file that contains the records `first` to `last`, without gaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRange {
    pub(crate) seed: RecordSeed,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
}

/// Iterates over the records of a [`RecordRange`], and of later ranges of the same file.
pub(crate) struct RecordWalk<R> {
    range: RecordRange,
    read_at: R,
    /// How many bytes to read at a time.
    chunk_bytes: usize,
    /// The offset up to which it may read ahead; not below the end of the range.
    read_to: u64,
    buffer: Bytes,
    /// The file offset of the buffer's first byte.
    buffer_start: u64,
    /// The file offset of the next record.
    offset: u64,
    expected: Seq,
}

/// An item of a [`RecordWalk`].
#[derive(Debug)]
pub(crate) enum WalkItem {
    Event(StoredEvent),
    /// The events `first` to `last` cannot be read back.
    Damaged {
        first: Seq,
        last: Seq,
        offset: u64,
    },
}

/// Reads a number of bytes at an offset of a file.
pub(crate) trait ReadAt: Fn(u64, usize) -> io::Result<Bytes> {}
impl<F: Fn(u64, usize) -> io::Result<Bytes>> ReadAt for F {}

impl<R: ReadAt> RecordWalk<R> {
    pub(crate) fn new(range: RecordRange, chunk_bytes: usize, read_at: R) -> Self {
        Self {
            range,
            read_at,
            chunk_bytes,
            read_to: range.end,
            buffer: Bytes::new(),
            buffer_start: range.start,
            offset: range.start,
            expected: range.first,
        }
    }

    /// Allows reading ahead up to `end`, for the ranges that follow.
    pub(crate) fn reading_ahead_to(self, end: u64) -> Self {
        Self { read_to: end.max(self.range.end), ..self }
    }

    /// The `seq` of the next item.
    pub(crate) fn expected(&self) -> Seq {
        self.expected
    }

    /// Continues with `range`, which follows the exhausted one in the file. Events between the two
    /// count as damaged.
    pub(crate) fn continue_with(&mut self, range: RecordRange) {
        self.offset = range.start;
        self.range = range;
    }

    /// Skips everything up to `last`, which counts as damaged. Returns `None` if nothing is left.
    pub(crate) fn skip_to_after(&mut self, last: Seq) -> Option<WalkItem> {
        let (first, offset) = (self.expected, self.offset);
        if first > last {
            return None;
        }
        self.expected = last.next();
        Some(WalkItem::Damaged { first, last, offset })
    }

    /// Returns the next event or damage, or `None` after the last. Given the offset of damage,
    /// `resume` returns the offset and `seq` of the next record that is known to start somewhere.
    pub(crate) fn next(
        &mut self,
        resume: impl Fn(u64) -> Option<(u64, Seq)>,
    ) -> io::Result<Option<WalkItem>> {
        if self.expected > self.range.last {
            return Ok(None);
        }
        let fault = match self.record_at(self.offset)? {
            Ok(event) if event.seq == self.expected => {
                self.expected = event.seq.next();
                return Ok(Some(WalkItem::Event(event)));
            }
            // The events in between were already lost when this file was written.
            Ok(event) if event.seq > self.expected && event.seq <= self.range.last => {
                let (first, offset) = (self.expected, self.offset);
                self.offset = self.record_start(&event);
                self.expected = event.seq;
                return Ok(Some(WalkItem::Damaged { first, last: event.seq.previous(), offset }));
            }
            Ok(_) => RecordFault::Damaged { plausible_bytes: None },
            Err(fault) => fault,
        };
        self.skip_damage(fault, resume).map(Some)
    }

    fn skip_damage(
        &mut self,
        fault: RecordFault,
        resume: impl Fn(u64) -> Option<(u64, Seq)>,
    ) -> io::Result<WalkItem> {
        let (first, offset) = (self.expected, self.offset);
        if let RecordFault::Damaged { plausible_bytes: Some(bytes) } = fault {
            let after = offset + bytes as u64;
            let follows = after == self.range.end && first == self.range.last
                || matches!(self.record_at(after)?, Ok(event) if event.seq == first.next());
            if follows {
                self.offset = after;
                self.expected = first.next();
                return Ok(WalkItem::Damaged { first, last: first, offset });
            }
        }
        match resume(offset).filter(|(_, seq)| *seq > first && *seq <= self.range.last) {
            Some((at, seq)) => {
                self.offset = at;
                self.expected = seq;
            }
            None => self.expected = self.range.last.next(),
        }
        Ok(WalkItem::Damaged { first, last: self.expected.previous(), offset })
    }

    /// Decodes the record at `offset` and advances `self.offset` past it.
    fn record_at(&mut self, offset: u64) -> io::Result<Result<StoredEvent, RecordFault>> {
        let mut wanted = self.chunk_bytes;
        let mut file_ends = false;
        loop {
            let skip =
                offset.checked_sub(self.buffer_start).and_then(|skip| usize::try_from(skip).ok());
            let rest = skip.and_then(|skip| self.buffer.get(skip..)).unwrap_or_default();
            let left = self.range.end.saturating_sub(offset);
            let rest = &rest[..rest.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            match super::decode(self.range.seed, rest) {
                Ok(found) => {
                    let bytes = found.total_bytes() as u64;
                    return Ok(match found.to_event(&self.buffer) {
                        Some(event) => {
                            self.offset = offset + bytes;
                            Ok(event)
                        }
                        None => Err(RecordFault::Damaged { plausible_bytes: None }),
                    });
                }
                Err(RecordFault::Truncated { needed })
                    if !file_ends
                        && rest.len() < wanted.max(needed)
                        && (rest.len() as u64) < left =>
                {
                    wanted = wanted.max(needed);
                    let ahead = self.read_to.saturating_sub(offset);
                    let bytes = usize::try_from(ahead).unwrap_or(usize::MAX).min(wanted);
                    self.buffer = match (self.read_at)(offset, bytes) {
                        Ok(buffer) => buffer,
                        Err(error) if is_damage(&error) => {
                            return Ok(Err(RecordFault::Damaged { plausible_bytes: None }));
                        }
                        Err(error) => return Err(error),
                    };
                    self.buffer_start = offset;
                    // The file is truncated: reading again returns no more.
                    file_ends = self.buffer.len() < bytes;
                }
                Err(RecordFault::Truncated { .. }) => {
                    return Ok(Err(RecordFault::Damaged { plausible_bytes: None }));
                }
                Err(fault) => return Ok(Err(fault)),
            }
        }
    }

    fn record_start(&self, event: &StoredEvent) -> u64 {
        // `record_at` advanced past the record, which is still in the buffer.
        let end = usize::try_from(self.offset - self.buffer_start).unwrap_or(usize::MAX);
        let json_start = end - event.json.len();
        let key = event.key.as_ref().map_or(0, |key| key.as_str().len());
        self.buffer_start
            + (json_start - key - event.id.as_bytes().len() - super::FIXED_BYTES) as u64
    }
}
