//! The read buffer of one connection, split into WebSocket frames.
//!
//! Nearly all frames are unfragmented text messages. They are parsed here, without a copy; everything
//! else goes to tungstenite, which keeps the state of fragmented messages.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes that are read but not parsed yet.
#[derive(Debug)]
pub(super) struct Incoming {
    bytes: BytesMut,
    /// Longer text frames go to tungstenite, which rejects them.
    max_text_bytes: usize,
    /// Bytes left of the other frame at the front, header included.
    left_of_other: usize,
    /// Whether the last other frame started or continued a fragmented message.
    in_fragmented_message: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The payload of an unfragmented text frame, unmasked and not checked for UTF-8.
    Text(Bytes),
    /// Raw bytes of one other frame, possibly a part of it.
    Other(Bytes),
}

const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
const FINAL_TEXT: u8 = FINAL | 1;
/// The opcode bit of control frames, which may come between the fragments of a message.
const CONTROL: u8 = 0x08;
const MASK_BYTES: usize = 4;

/// A frame header.
struct Header {
    first: u8,
    is_masked: bool,
    /// Length of the header, mask included.
    bytes: usize,
    /// Length of the payload.
    payload: usize,
}

impl Incoming {
    pub(super) fn new(max_text_bytes: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            max_text_bytes,
            left_of_other: 0,
            in_fragmented_message: false,
        }
    }

    pub(super) fn append(&mut self, read: &[u8]) {
        self.bytes.extend_from_slice(read);
    }

    /// Returns the next piece. A text frame is returned once it is complete.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Piece> {
        if self.left_of_other == 0 {
            let header = Header::parse(&self.bytes)?;
            let is_text =
                header.first == FINAL_TEXT && header.is_masked && !self.in_fragmented_message;
            if is_text && header.payload <= self.max_text_bytes {
                return self.text(&header);
            }
            if header.first & CONTROL == 0 {
                self.in_fragmented_message = header.first & FINAL == 0;
            }
            self.left_of_other = header.bytes.saturating_add(header.payload);
        }
        let available = self.bytes.len().min(self.left_of_other);
        if available == 0 {
            return None;
        }
        self.left_of_other -= available;
        Some(Piece::Other(self.take(available).freeze()))
    }

    fn text(&mut self, header: &Header) -> Option<Piece> {
        if self.bytes.len() < header.bytes + header.payload {
            return None;
        }
        let mut text = self.take(header.bytes + header.payload);
        text.advance(header.bytes - MASK_BYTES);
        let mask = text.get_u32_ne().to_ne_bytes();
        unmask(&mut text, mask);
        Some(Piece::Text(text.freeze()))
    }

    fn take(&mut self, count: usize) -> BytesMut {
        if count == self.bytes.len() {
            // Even an empty remainder would keep the whole buffer alive.
            return std::mem::take(&mut self.bytes);
        }
        self.bytes.split_to(count)
    }
}

impl Header {
    /// Parses the header at the start of `bytes`, or returns `None` if it is incomplete.
    #[inline]
    fn parse(bytes: &[u8]) -> Option<Self> {
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
