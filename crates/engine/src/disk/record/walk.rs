//! Going through records in a row, in a file of any kind, and finding the way on behind damage.

use std::io;

use bytes::Bytes;
use prombus_proto::Seq;

use crate::StoredEvent;
use crate::disk::record::{self, RecordFault, RecordSeed};

/// Some bytes of a file that hold the records `first` to `last` in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRange {
    pub(crate) seed: RecordSeed,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
}

/// Goes through a [`RecordRange`].
pub(crate) struct RecordWalk<R> {
    range: RecordRange,
    read_at: R,
    /// How much to read at a time.
    chunk_bytes: usize,
    /// To where the file may be read ahead; not before the range ends.
    read_to: u64,
    buffer: Bytes,
    /// Where in the file the buffer begins.
    buffer_start: u64,
    /// Where in the file the next record begins.
    offset: u64,
    expected: Seq,
}

/// What comes next in a range.
#[derive(Debug)]
pub(crate) enum Walked {
    Event(StoredEvent),
    /// Positions that cannot be read back.
    Damaged {
        first: Seq,
        last: Seq,
        offset: u64,
    },
}

/// Reads `bytes` bytes of a file at an offset.
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

    /// Lets it read ahead to `end`, for the ranges that follow.
    pub(crate) fn reading_ahead_to(self, end: u64) -> Self {
        Self { read_to: end.max(self.range.end), ..self }
    }

    /// The position that comes next.
    pub(crate) fn expected(&self) -> Seq {
        self.expected
    }

    /// Goes on with `range`, which lies behind the one that it has gone through. Positions between the two
    /// are damage.
    pub(crate) fn go_on_with(&mut self, range: RecordRange) {
        self.offset = range.start;
        self.range = range;
    }

    /// The next event or damage; nothing behind the last. `resume` tells where to go on behind
    /// damage at an offset: the next place where a known event begins.
    pub(crate) fn next(
        &mut self,
        resume: impl Fn(u64) -> Option<(u64, Seq)>,
    ) -> io::Result<Option<Walked>> {
        if self.expected > self.range.last {
            return Ok(None);
        }
        let fault = match self.record_at(self.offset)? {
            Ok(event) if event.seq == self.expected => {
                self.expected = event.seq.next();
                return Ok(Some(Walked::Event(event)));
            }
            // A later position: those before it were lost before they came here.
            Ok(event) if event.seq > self.expected && event.seq <= self.range.last => {
                let (first, offset) = (self.expected, self.offset);
                self.offset = self.record_start(&event);
                self.expected = event.seq;
                return Ok(Some(Walked::Damaged { first, last: event.seq.previous(), offset }));
            }
            Ok(_) => RecordFault::Damaged { believed_bytes: None },
            Err(fault) => fault,
        };
        self.pass_over(fault, resume).map(Some)
    }

    fn pass_over(
        &mut self,
        fault: RecordFault,
        resume: impl Fn(u64) -> Option<(u64, Seq)>,
    ) -> io::Result<Walked> {
        let (first, offset) = (self.expected, self.offset);
        if let RecordFault::Damaged { believed_bytes: Some(bytes) } = fault {
            let behind = offset + bytes as u64;
            let follows = behind == self.range.end && first == self.range.last
                || matches!(self.record_at(behind)?, Ok(event) if event.seq == first.next());
            if follows {
                self.offset = behind;
                self.expected = first.next();
                return Ok(Walked::Damaged { first, last: first, offset });
            }
        }
        match resume(offset).filter(|(_, seq)| *seq > first && *seq <= self.range.last) {
            Some((at, seq)) => {
                self.offset = at;
                self.expected = seq;
            }
            None => self.expected = self.range.last.next(),
        }
        Ok(Walked::Damaged { first, last: self.expected.previous(), offset })
    }

    /// The record at `offset`, and `self.offset` moves behind it.
    fn record_at(&mut self, offset: u64) -> io::Result<Result<StoredEvent, RecordFault>> {
        let mut wanted = self.chunk_bytes;
        let mut file_ends = false;
        loop {
            let skip =
                offset.checked_sub(self.buffer_start).and_then(|skip| usize::try_from(skip).ok());
            let rest = skip.and_then(|skip| self.buffer.get(skip..)).unwrap_or_default();
            let left = self.range.end.saturating_sub(offset);
            let rest = &rest[..rest.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            match record::decode(self.range.seed, rest) {
                Ok(found) => {
                    let bytes = found.total_bytes() as u64;
                    return Ok(match found.to_event(&self.buffer) {
                        Some(event) => {
                            self.offset = offset + bytes;
                            Ok(event)
                        }
                        None => Err(RecordFault::Damaged { believed_bytes: None }),
                    });
                }
                Err(RecordFault::CutOff { needed })
                    if !file_ends
                        && rest.len() < wanted.max(needed)
                        && (rest.len() as u64) < left =>
                {
                    wanted = wanted.max(needed);
                    let ahead = self.read_to.saturating_sub(offset);
                    let bytes = usize::try_from(ahead).unwrap_or(usize::MAX).min(wanted);
                    self.buffer = match (self.read_at)(offset, bytes) {
                        Ok(buffer) => buffer,
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            return Ok(Err(RecordFault::Damaged { believed_bytes: None }));
                        }
                        Err(error) => return Err(error),
                    };
                    self.buffer_start = offset;
                    // Of a file that was cut off, asking again gives no more.
                    file_ends = self.buffer.len() < bytes;
                }
                Err(RecordFault::CutOff { .. }) => {
                    return Ok(Err(RecordFault::Damaged { believed_bytes: None }));
                }
                Err(fault) => return Ok(Err(fault)),
            }
        }
    }

    fn record_start(&self, event: &StoredEvent) -> u64 {
        // `record_at` moved behind the record; it is still in the buffer.
        let behind = usize::try_from(self.offset - self.buffer_start).unwrap_or(usize::MAX);
        let json_start = behind - event.json.len();
        let key = event.key.as_ref().map_or(0, |key| key.as_str().len());
        self.buffer_start
            + (json_start - key - event.id.as_bytes().len() - record::FIXED_BYTES) as u64
    }
}
