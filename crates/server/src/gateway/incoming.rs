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
    /// Whether the other frame at the front is a control frame.
    is_control: bool,
    /// Bytes passed on of a message that is not complete, which tungstenite keeps.
    kept: usize,
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
            is_control: false,
            kept: 0,
        }
    }

    pub(super) const fn set_max_text_bytes(&mut self, max_text_bytes: usize) {
        self.max_text_bytes = max_text_bytes;
    }

    /// Returns the bytes that are read but not parsed yet.
    pub(super) fn unparsed(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the memory of everything that is read and not returned as a message.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.kept
    }

    pub(super) fn append(&mut self, read: &[u8]) {
        let capacity = self.capacity_with(read.len());
        if capacity > self.bytes.len() + read.len() && capacity > self.bytes.capacity() {
            // Room for more of a large frame, but not for more than that frame.
            let mut grown = BytesMut::with_capacity(capacity);
            grown.extend_from_slice(&self.bytes);
            self.bytes = grown;
        }
        self.bytes.extend_from_slice(read);
    }

    /// Returns the capacity of the buffer when `count` more bytes are read. It doubles, up to the end of the
    /// frame that is arriving.
    fn capacity_with(&self, count: usize) -> usize {
        let (needed, capacity) = (self.bytes.len() + count, self.bytes.capacity());
        if needed <= capacity {
            return capacity;
        }
        let frame = Header::parse(&self.bytes)
            .map_or(0, |header| header.bytes.saturating_add(header.payload));
        needed.max(frame.min(2 * capacity))
    }

    /// Returns how many bytes can be read without more memory.
    pub(super) fn spare_bytes(&self) -> usize {
        self.bytes.capacity() - self.bytes.len()
    }

    /// Returns how much more memory it takes to read `count` bytes.
    pub(super) fn growth_for(&self, count: usize) -> usize {
        self.capacity_with(count) - self.bytes.capacity()
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
            self.is_control = header.first & CONTROL != 0;
            if !self.is_control {
                self.in_fragmented_message = header.first & FINAL == 0;
            }
            self.left_of_other = header.bytes.saturating_add(header.payload);
        }
        let available = self.bytes.len().min(self.left_of_other);
        if available == 0 {
            return None;
        }
        self.left_of_other -= available;
        if !self.is_control {
            let is_complete = self.left_of_other == 0 && !self.in_fragmented_message;
            self.kept = if is_complete { 0 } else { self.kept + available };
        }
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
