//! The frames of a WAL file, which may be a segment by now.

use super::{Counted, Units};
use crate::disk::storage::checksum::BlockChecksum;
use crate::disk::wal::frame::{FrameEnd, FrameHeader};

pub(super) struct Frames {
    next_number: Option<u64>,
    part: Part,
    events: u64,
}

/// What comes next.
enum Part {
    Header,
    /// The records of a topic: `left` bytes are not checked yet.
    Section {
        frame: FrameHeader,
        index: usize,
        sum: BlockChecksum,
        left: usize,
    },
    State {
        frame: FrameHeader,
        /// Boxed because it is larger than everything else here.
        digest: Box<crc_fast::Digest>,
        left: usize,
    },
    Footer {
        frame: FrameHeader,
    },
    /// Preallocated space.
    Zeros,
}

impl Frames {
    pub(super) fn starting_with(number: Option<u64>) -> Self {
        Self { next_number: number, part: Part::Header, events: 0 }
    }

    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let Some(start) = bytes.get(..8) else { return Ok(0) };
        if start.iter().all(|byte| *byte == 0) {
            self.part = Part::Zeros;
            return Ok(8);
        }
        let claimed = FrameHeader::claimed_header_bytes(start);
        let claimed = claimed.ok_or("no batch starts here")?;
        if claimed > MAX_HEADER_BYTES {
            return Err("the header of a batch is damaged".to_owned());
        }
        if bytes.len() < claimed {
            return Ok(0);
        }
        let Some((FrameEnd::Header, frame)) = FrameHeader::decode(&bytes[..claimed]) else {
            return Err("the header of a batch is damaged".to_owned());
        };
        if let Some(expected) = self.next_number.filter(|expected| *expected != frame.number) {
            return Err(format!("batch {} follows instead of batch {expected}", frame.number));
        }
        self.next_number = Some(frame.number + 1);
        self.part = Self::section(frame, 0);
        Ok(claimed)
    }

    /// Returns the part of a frame that starts with this section, or what follows the last one.
    fn section(frame: FrameHeader, index: usize) -> Part {
        match frame.sections.get(index) {
            Some(section) => {
                let left = section.bytes as usize;
                Part::Section { frame, index, sum: BlockChecksum::default(), left }
            }
            None => {
                let digest = Box::new(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi));
                let left = frame.state_bytes as usize;
                Part::State { frame, digest, left }
            }
        }
    }
}

/// No frame has more topics and trims than this takes.
const MAX_HEADER_BYTES: usize = 256 << 20;

impl Units for Frames {
    fn take(&mut self, bytes: &[u8], offset: u64) -> Result<usize, String> {
        if offset == 0 {
            return Ok(0);
        }
        match std::mem::replace(&mut self.part, Part::Header) {
            Part::Header => self.take_header(bytes),
            Part::Section { frame, index, sum, left: 0 } => {
                let section = &frame.sections[index];
                if sum.sum() != section.checksum {
                    let (topic, first) = (&section.topic, section.first);
                    return Err(format!(
                        "the records before it, from event {first} of {topic} on, have a checksum \
                         mismatch"
                    ));
                }
                self.events += u64::from(section.count);
                self.part = Self::section(frame, index + 1);
                self.take(bytes, offset)
            }
            Part::Section { frame, index, mut sum, left } => {
                let wanted = left.min(BlockChecksum::BLOCK_BYTES);
                let taken = bytes.get(..wanted).map_or(0, |block| {
                    sum.add_block(block);
                    wanted
                });
                self.part = Part::Section { frame, index, sum, left: left - taken };
                Ok(taken)
            }
            Part::State { frame, digest, left: 0 } => {
                if digest.finalize() != u64::from(frame.state_checksum) {
                    return Err("the state changes before it have a checksum mismatch".to_owned());
                }
                self.part = Part::Footer { frame };
                self.take(bytes, offset)
            }
            Part::State { frame, mut digest, left } => {
                let taken = left.min(bytes.len());
                digest.update(&bytes[..taken]);
                self.part = Part::State { frame, digest, left: left - taken };
                Ok(taken)
            }
            Part::Footer { frame } => {
                let footer = frame.encode(FrameEnd::Footer);
                let Some(found) = bytes.get(..footer.len()) else {
                    self.part = Part::Footer { frame };
                    return Ok(0);
                };
                match found == footer {
                    true => Ok(footer.len()),
                    false => Err("the end of a batch is damaged".to_owned()),
                }
            }
            Part::Zeros => match bytes.iter().any(|byte| *byte != 0) {
                true => Err("something follows the last batch".to_owned()),
                false => {
                    self.part = Part::Zeros;
                    Ok(bytes.len())
                }
            },
        }
    }

    fn finish(&mut self, rest: &[u8]) -> Result<Counted, String> {
        let is_complete = match self.part {
            Part::Header => rest.iter().all(|byte| *byte == 0),
            Part::Zeros => true,
            Part::Section { .. } | Part::State { .. } | Part::Footer { .. } => false,
        };
        match is_complete {
            true => Ok(Counted {
                events: self.events,
                next_frame: self.next_number,
                ..Counted::default()
            }),
            false => Err("the last batch is not complete".to_owned()),
        }
    }
}
