//! Reads the frames of a WAL file back after a restart.
//!
//! What follows tells a crash from damage: nothing follows an unfinished batch, while a damaged one
//! is followed by more frames, in the same file or in a later one.

use std::borrow::Cow;

use super::frame::{FrameEnd, FrameHeader};
use super::scanned_frame::ScannedFrame;

/// Iterates over the frames in the bytes of one file.
pub(crate) struct WalScan<'a> {
    bytes: &'a [u8],
    /// The file offset of the first byte.
    base: u64,
    offset: usize,
    /// The lowest number that the next frame can have.
    next_number: u64,
    /// Whether a later file exists: everything in this one was complete before that was created.
    is_complete: bool,
}

/// An item of a [`WalScan`].
#[derive(Debug)]
pub(crate) enum ScanStep {
    /// A frame, intact or with some damage inside.
    Frame(ScannedFrame),
    /// Bytes that cannot be attributed to any frame, followed by more frames.
    Damage {
        offset: u64,
        bytes: u64,
    },
    /// An unfinished batch, which starts here and extends to the end.
    Torn {
        offset: u64,
    },
    End,
}

impl<'a> WalScan<'a> {
    /// Scans `bytes`, which start with a frame at the file offset `base`. They have to extend to the
    /// end of the file, except for [`WalScan::next_intact_frame`].
    pub(crate) fn new(bytes: &'a [u8], base: u64, next_number: u64, is_complete: bool) -> Self {
        Self { bytes, base, offset: 0, next_number, is_complete }
    }

    /// Returns the next frame if all of it is here and undamaged.
    pub(crate) fn next_intact_frame(&mut self) -> Option<ScannedFrame> {
        let header = self.header_at(self.offset)?;
        let end = self.offset + size(&header);
        let frame = self.frame(self.offset, header).filter(ScannedFrame::is_intact)?;
        if end > self.bytes.len() {
            return None;
        }
        self.offset = end;
        self.next_number = frame.header.number + 1;
        Some(frame)
    }

    /// Returns `true` if the next frame extends past the end of the bytes.
    pub(crate) fn is_cut_off(&self) -> bool {
        let left = self.bytes.len() - self.offset;
        self.header_at(self.offset).is_some_and(|header| size(&header) > left)
    }

    /// How many bytes were scanned.
    pub(crate) fn scanned(&self) -> usize {
        self.offset
    }

    pub(crate) fn next_step(&mut self) -> ScanStep {
        let start = self.offset;
        let rest = &self.bytes[start..];
        if rest.iter().all(|byte| *byte == 0) {
            return ScanStep::End;
        }
        let torn = ScanStep::Torn { offset: self.base + start as u64 };
        if let Some(header) = self.header_at(start) {
            let (end, number) = (start + size(&header), header.number);
            if let Some(frame) = self.frame(start, header)
                && (frame.is_intact() || self.is_followed_by(number + 1, end))
            {
                return self.step_over(frame, end);
            }
            return torn;
        }
        // The header is damaged. The footer, or the next frame, tells where to continue.
        match self.next_end_from(start, self.next_number) {
            Some((FrameEnd::Footer, end, header))
                if end.checked_sub(size(&header)) == Some(start) =>
            {
                if self.is_followed_by(header.number + 1, end)
                    && let Some(frame) = self.frame(start, header)
                {
                    return self.step_over(frame, end);
                }
                torn
            }
            Some((FrameEnd::Footer, end, header)) => self.skip(start, end, header.number + 1),
            // The lost frame had the expected number. One that has it as well was never completed:
            // it is what a refused batch left behind.
            Some((FrameEnd::Header, _, header))
                if header.number == self.next_number && !self.is_complete =>
            {
                torn
            }
            Some((FrameEnd::Header, at, header)) => self.skip(start, at, header.number),
            None => torn,
        }
    }

    fn step_over(&mut self, frame: ScannedFrame, end: usize) -> ScanStep {
        self.offset = end.min(self.bytes.len());
        self.next_number = frame.header.number + 1;
        ScanStep::Frame(frame)
    }

    fn skip(&mut self, start: usize, to: usize, next_number: u64) -> ScanStep {
        if !self.is_followed_by(next_number, to) {
            return ScanStep::Torn { offset: self.base + start as u64 };
        }
        self.offset = to;
        self.next_number = next_number;
        ScanStep::Damage { offset: self.base + start as u64, bytes: (to - start) as u64 }
    }

    fn header_at(&self, offset: usize) -> Option<FrameHeader> {
        match FrameHeader::decode(&self.bytes[offset..])? {
            (FrameEnd::Header, header) if header.number >= self.next_number => Some(header),
            _ => None,
        }
    }

    /// Returns `true` if a frame with this number or a higher one follows `offset`, which means that
    /// everything before was completely written.
    fn is_followed_by(&self, number: u64, offset: usize) -> bool {
        self.is_complete || self.next_end_from(offset, number).is_some()
    }

    /// Finds the next intact header or footer from `offset` on of a frame with this number or a higher
    /// one, and returns the offset at which the header starts or the footer ends.
    fn next_end_from(&self, offset: usize, number: u64) -> Option<(FrameEnd, usize, FrameHeader)> {
        (offset..self.bytes.len()).find_map(|at| {
            let rest = &self.bytes[at..];
            FrameHeader::claimed_header_bytes(rest)?;
            let (end, header) = FrameHeader::decode(rest)?;
            let at = if end == FrameEnd::Footer { at + header.header_bytes() } else { at };
            (header.number >= number).then_some((end, at, header))
        })
    }

    /// Decodes the frame at `start`. If the file ends before the frame, returns `None`, or what is
    /// left of it if it was complete once.
    fn frame(&self, start: usize, header: FrameHeader) -> Option<ScannedFrame> {
        let frame = match self.bytes.get(start..start + size(&header)) {
            Some(frame) => Cow::Borrowed(frame),
            None if self.is_complete => {
                let mut left = self.bytes[start..].to_vec();
                left.resize(size(&header), 0);
                Cow::Owned(left)
            }
            None => return None,
        };
        Some(ScannedFrame::decode(header, &frame, self.base + start as u64))
    }
}

fn size(header: &FrameHeader) -> usize {
    usize::try_from(header.frame_bytes()).unwrap_or(usize::MAX)
}
