//! The write buffer of one connection, as WebSocket frames.
//!
//! We encode frames ourselves instead of using tungstenite: many frames leave in one write without a
//! buffer each, and a peer that does not read still gets a close frame after the frame that is
//! partly written.

use super::close_code::CloseCode;

/// Encoded frames that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// Bytes written so far.
    written: usize,
    /// The start of a frame, at or before `written`.
    frame_start: usize,
}

const FINAL_TEXT: u8 = 0x81;
const FINAL_CLOSE: u8 = 0x88;
const FINAL_PING: u8 = 0x89;

/// [`Outgoing::shrink`] frees a larger buffer.
const RETAINED_BYTES: usize = 16 << 10;

impl Outgoing {
    /// Appends a text frame whose payload `write` writes.
    pub(super) fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        // Most frames have a four-byte header; the payload of others is moved.
        self.bytes.extend_from_slice(&[FINAL_TEXT, 126, 0, 0]);
        write(&mut self.bytes);
        let length = self.bytes.len() - start - 4;
        match u16::try_from(length) {
            Ok(short @ ..126) => {
                self.bytes.copy_within(start + 4.., start + 2);
                self.bytes.truncate(start + 2 + length);
                self.bytes[start + 1] = short.to_be_bytes()[1];
            }
            Ok(middle) => self.bytes[start + 2..start + 4].copy_from_slice(&middle.to_be_bytes()),
            Err(_) => {
                let head = (length as u64).to_be_bytes();
                self.bytes[start + 1] = 127;
                self.bytes.splice(start + 2..start + 4, head);
            }
        }
    }

    pub(super) fn ping(&mut self) {
        self.bytes.extend_from_slice(&[FINAL_PING, 0]);
    }

    /// Appends encoded frames.
    pub(super) fn encoded(&mut self, frames: &[u8]) {
        self.bytes.extend_from_slice(frames);
    }

    /// Drops all frames of which nothing is written, and appends a close frame.
    pub(super) fn discard_and_close(&mut self, code: CloseCode) {
        self.advance_frame_start();
        if self.frame_start < self.written {
            self.bytes.truncate(self.frame_end(self.frame_start));
        } else {
            self.bytes.truncate(self.written);
        }
        self.close(code);
    }

    /// Appends a close frame.
    pub(super) fn close(&mut self, code: CloseCode) {
        let reason = code.reason().as_bytes();
        let length = u8::try_from(2 + reason.len()).expect("reasons are short");
        self.bytes.extend_from_slice(&[FINAL_CLOSE, length]);
        self.bytes.extend_from_slice(&code.number().to_be_bytes());
        self.bytes.extend_from_slice(reason);
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Returns the memory of the buffer.
    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn unwritten(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            (self.written, self.frame_start) = (0, 0);
            return;
        }
        self.advance_frame_start();
        if self.frame_start > self.bytes.len() / 2 {
            // Reuse the space of the frames that are written.
            self.bytes.drain(..self.frame_start);
            self.written -= self.frame_start;
            self.frame_start = 0;
        }
    }

    /// Frees a large buffer if it is empty.
    pub(super) fn shrink(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > RETAINED_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Moves `frame_start` to the frame that contains `written`.
    fn advance_frame_start(&mut self) {
        while self.frame_start < self.written {
            let end = self.frame_end(self.frame_start);
            if end > self.written {
                break;
            }
            self.frame_start = end;
        }
    }

    /// Returns the end of the frame that starts at `start`.
    fn frame_end(&self, start: usize) -> usize {
        let frame = &self.bytes[start..];
        let big_endian = |bytes: &[u8]| {
            bytes.iter().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
        };
        match frame[1] {
            127 => start + 10 + big_endian(&frame[2..10]),
            126 => start + 4 + big_endian(&frame[2..4]),
            short => start + 2 + usize::from(short),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(lengths: &[usize]) -> Outgoing {
        let mut outgoing = Outgoing::default();
        for length in lengths {
            outgoing.text(|out| out.extend(std::iter::repeat_n(b'x', *length)));
        }
        outgoing
    }

    #[test]
    fn encodes_all_three_header_forms() {
        for (length, header) in [
            (0, vec![0x81, 0]),
            (125, vec![0x81, 125]),
            (126, vec![0x81, 126, 0, 126]),
            (65_535, vec![0x81, 126, 0xFF, 0xFF]),
            (65_536, vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let outgoing = with(&[length]);
            assert_eq!(outgoing.unwritten()[..header.len()], header, "{length}");
            assert_eq!(outgoing.len(), header.len() + length);
            assert!(outgoing.unwritten()[header.len()..].iter().all(|byte| *byte == b'x'));
        }
    }

    #[test]
    fn shrink_frees_a_large_buffer_only_when_it_is_empty() {
        let mut outgoing = with(&[4 * RETAINED_BYTES]);
        outgoing.shrink();
        outgoing.advance(outgoing.len());
        assert!(outgoing.bytes.capacity() > RETAINED_BYTES);
        outgoing.shrink();
        assert_eq!(outgoing.bytes.capacity(), 0);
    }

    /// The peer gets whole frames and then the close frame, wherever the last write ended.
    #[test]
    fn the_close_frame_follows_the_partly_written_frame() {
        let lengths = [3, 200, 0, 70_000, 10];
        let whole = with(&lengths).unwritten().to_vec();
        let mut frame_ends = vec![0];
        for length in 1..=lengths.len() {
            frame_ends.push(with(&lengths[..length]).len());
        }
        for written in (0..whole.len()).step_by(7).chain(frame_ends.clone()) {
            let mut outgoing = with(&lengths);
            let mut sent = Vec::new();
            for part in [written / 2, written - written / 2] {
                sent.extend_from_slice(&outgoing.unwritten()[..part]);
                outgoing.advance(part);
            }
            outgoing.discard_and_close(CloseCode::SlowConsumer);
            sent.extend_from_slice(outgoing.unwritten());
            let whole_frames = *frame_ends.iter().find(|end| **end >= written).unwrap();
            assert_eq!(sent[..whole_frames], whole[..whole_frames], "{written}");
            let mut close = Outgoing::default();
            close.close(CloseCode::SlowConsumer);
            assert_eq!(&sent[whole_frames..], close.unwritten(), "{written}");
        }
    }
}
