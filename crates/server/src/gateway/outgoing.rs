//! What waits to be written to one socket, as WebSocket frames.
//!
//! Frames are put together here rather than by the library: many leave in one write without a
//! buffer for each, and a peer that does not read can still be told why it is closed.

use super::close_code::CloseCode;

/// Frames that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// How much of it was written.
    written: usize,
    /// Where a frame begins, at or before what was written.
    frame_start: usize,
}

const FINAL_TEXT: u8 = 0x81;
const FINAL_CLOSE: u8 = 0x88;
const FINAL_PING: u8 = 0x89;

/// A buffer that grew larger than this is given back when it has been empty for a while.
const KEPT_BYTES: usize = 16 << 10;

impl Outgoing {
    /// Adds a text frame with what `write` appends.
    pub(super) fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        // Most frames have a head of four bytes; others are moved.
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

    /// Adds bytes that are whole frames already.
    pub(super) fn frames(&mut self, frames: &[u8]) {
        self.bytes.extend_from_slice(frames);
    }

    /// Leaves out all that is not begun, and says goodbye instead.
    pub(super) fn only_close(&mut self, code: CloseCode) {
        self.step_to_written();
        if self.frame_start < self.written {
            self.bytes.truncate(self.frame_end(self.frame_start));
        } else {
            self.bytes.truncate(self.written);
        }
        self.close(code);
    }

    /// Says goodbye behind all that waits.
    pub(super) fn close(&mut self, code: CloseCode) {
        let reason = code.reason().as_bytes();
        let length = u8::try_from(2 + reason.len()).expect("reasons are short");
        self.bytes.extend_from_slice(&[FINAL_CLOSE, length]);
        self.bytes.extend_from_slice(&code.number().to_be_bytes());
        self.bytes.extend_from_slice(reason);
    }

    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    pub(super) fn to_write(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    pub(super) fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            (self.written, self.frame_start) = (0, 0);
            return;
        }
        self.step_to_written();
        if self.frame_start > self.bytes.len() / 2 {
            // What was written makes room for what comes.
            self.bytes.drain(..self.frame_start);
            self.written -= self.frame_start;
            self.frame_start = 0;
        }
    }

    /// Gives back a large buffer if nothing waits in it.
    pub(super) fn shrink(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// Moves `frame_start` to the frame that is written now.
    fn step_to_written(&mut self) {
        while self.frame_start < self.written {
            let end = self.frame_end(self.frame_start);
            if end > self.written {
                break;
            }
            self.frame_start = end;
        }
    }

    /// Where the frame ends that begins at `start`.
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
    fn heads_have_the_three_forms_of_the_standard() {
        for (length, head) in [
            (0, vec![0x81, 0]),
            (125, vec![0x81, 125]),
            (126, vec![0x81, 126, 0, 126]),
            (65_535, vec![0x81, 126, 0xFF, 0xFF]),
            (65_536, vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let outgoing = with(&[length]);
            assert_eq!(outgoing.to_write()[..head.len()], head, "{length}");
            assert_eq!(outgoing.waiting(), head.len() + length);
            assert!(outgoing.to_write()[head.len()..].iter().all(|byte| *byte == b'x'));
        }
    }

    #[test]
    fn a_large_buffer_stays_until_it_is_to_shrink_and_nothing_waits() {
        let mut outgoing = with(&[4 * KEPT_BYTES]);
        outgoing.shrink();
        outgoing.wrote(outgoing.waiting());
        assert!(outgoing.bytes.capacity() > KEPT_BYTES);
        outgoing.shrink();
        assert_eq!(outgoing.bytes.capacity(), 0);
    }

    /// Whatever was written already, what leaves is whole frames and the goodbye.
    #[test]
    fn a_goodbye_comes_behind_the_frame_that_is_begun() {
        let lengths = [3, 200, 0, 70_000, 10];
        let whole = with(&lengths).to_write().to_vec();
        let mut frame_ends = vec![0];
        for length in 1..=lengths.len() {
            frame_ends.push(with(&lengths[..length]).waiting());
        }
        for written in (0..whole.len()).step_by(7).chain(frame_ends.clone()) {
            let mut outgoing = with(&lengths);
            let mut left = Vec::new();
            for part in [written / 2, written - written / 2] {
                left.extend_from_slice(&outgoing.to_write()[..part]);
                outgoing.wrote(part);
            }
            outgoing.only_close(CloseCode::SlowConsumer);
            left.extend_from_slice(outgoing.to_write());
            let kept = *frame_ends.iter().find(|end| **end >= written).unwrap();
            assert_eq!(left[..kept], whole[..kept], "{written}");
            let mut goodbye = Outgoing::default();
            goodbye.close(CloseCode::SlowConsumer);
            assert_eq!(&left[kept..], goodbye.to_write(), "{written}");
        }
    }
}
