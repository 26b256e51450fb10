//! What was read from one socket and is not served yet, as WebSocket frames.
//!
//! Nearly all that comes are texts of one frame each. They are found here, in what came together; all else is
//! left to the library, whose state is more than a frame.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes that were read, and where in a message they are.
#[derive(Debug)]
pub(super) struct Incoming {
    bytes: BytesMut,
    /// The longest text that is found here.
    longest: usize,
    /// How much of the frame at the front is still to come that is not a text of its own.
    left_of_other: usize,
    /// Whether the message of the last such frame goes on in another.
    is_within_message: bool,
}

/// What is next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A message of one frame that says it is text.
    Text(Bytes),
    /// Some of another frame, to its end at most.
    OfOther(Bytes),
}

const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
const FINAL_TEXT: u8 = FINAL | 1;
/// What control frames have in their opcode, which may come within messages.
const CONTROL: u8 = 0x08;
const MASK_BYTES: usize = 4;

/// The begin of a frame.
struct Head {
    first: u8,
    is_masked: bool,
    /// Of the head, the mask included.
    bytes: usize,
    /// Of what follows.
    payload: usize,
}

impl Incoming {
    /// Finds texts of up to `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { bytes: BytesMut::new(), longest, left_of_other: 0, is_within_message: false }
    }

    pub(super) fn append(&mut self, read: &[u8]) {
        self.bytes.extend_from_slice(read);
    }

    /// The next piece, if all of it has come.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Piece> {
        if self.left_of_other == 0 {
            let head = Head::of(&self.bytes)?;
            let is_text = head.first == FINAL_TEXT && head.is_masked && !self.is_within_message;
            if is_text && head.payload <= self.longest {
                return self.text(&head);
            }
            if head.first & CONTROL == 0 {
                self.is_within_message = head.first & FINAL == 0;
            }
            self.left_of_other = head.bytes.saturating_add(head.payload);
        }
        let here = self.bytes.len().min(self.left_of_other);
        if here == 0 {
            return None;
        }
        self.left_of_other -= here;
        Some(Piece::OfOther(self.take(here).freeze()))
    }

    fn text(&mut self, head: &Head) -> Option<Piece> {
        if self.bytes.len() < head.bytes + head.payload {
            return None;
        }
        let mut text = self.take(head.bytes + head.payload);
        text.advance(head.bytes - MASK_BYTES);
        let mask = text.get_u32_ne().to_ne_bytes();
        unmask(&mut text, mask);
        Some(Piece::Text(text.freeze()))
    }

    fn take(&mut self, count: usize) -> BytesMut {
        if count == self.bytes.len() {
            // Even an empty one would hold on to the whole buffer.
            return std::mem::take(&mut self.bytes);
        }
        self.bytes.split_to(count)
    }
}

impl Head {
    /// The head of the frame that `bytes` begin with, if all of it is there.
    #[inline]
    fn of(bytes: &[u8]) -> Option<Self> {
        let (&first, &second) = (bytes.first()?, bytes.get(1)?);
        let (end_of_length, payload) = match second & !MASKED {
            127 => (10, u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)),
            126 => (4, u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?).into()),
            short => (2, short.into()),
        };
        let is_masked = second & MASKED != 0;
        let bytes = end_of_length + if is_masked { MASK_BYTES } else { 0 };
        Some(Self {
            first,
            is_masked,
            bytes,
            payload: usize::try_from(payload).unwrap_or(usize::MAX),
        })
    }
}

fn unmask(text: &mut [u8], mask: [u8; MASK_BYTES]) {
    let [a, b, c, d] = mask;
    let twice = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = text.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ twice).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(twice.to_ne_bytes()) {
        *byte ^= mask;
    }
}
