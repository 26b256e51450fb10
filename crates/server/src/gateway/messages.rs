//! Decodes the messages of one peer. No I/O.
//!
//! [`Incoming`] finds unfragmented text messages; tungstenite gets all other frames: fragments, control
//! frames and malformed ones.

use std::io::{self, Read, Write};

use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::incoming::{Incoming, Piece};
use super::outgoing::Outgoing;

pub(super) struct Messages {
    incoming: Incoming,
    tungstenite: WebSocketContext,
}

/// tungstenite's read buffer. Every connection has one, and few use it for more than a pong.
const READ_BUFFER_BYTES: usize = 256;

impl Messages {
    pub(super) fn new(max_message_bytes: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(max_message_bytes))
            .max_frame_size(Some(max_message_bytes));
        let tungstenite = WebSocketContext::new(Role::Server, Some(config));
        Self { incoming: Incoming::new(max_message_bytes), tungstenite }
    }

    /// Changes the limit of messages that arrive from now on.
    pub(super) fn set_max_message_bytes(&mut self, max_message_bytes: usize) {
        self.incoming.set_max_text_bytes(max_message_bytes);
        self.tungstenite.set_config(|config| {
            config.max_message_size = Some(max_message_bytes);
            config.max_frame_size = Some(max_message_bytes);
        });
    }

    /// Returns the bytes that are read but not parsed yet.
    pub(super) fn unparsed(&self) -> usize {
        self.incoming.unparsed()
    }

    /// Returns how many bytes can be read without more memory.
    pub(super) fn spare_bytes(&self) -> usize {
        self.incoming.spare_bytes()
    }

    /// Returns how much more memory it takes to read `count` bytes.
    pub(super) fn growth_for(&self, count: usize) -> usize {
        self.incoming.growth_for(count)
    }

    /// Returns the memory of everything that is read and not returned as a message.
    pub(super) fn held_bytes(&self) -> usize {
        self.incoming.held_bytes()
    }

    pub(super) fn append(&mut self, read: &[u8]) {
        self.incoming.append(read);
    }

    /// Returns the next complete message. Pongs and close frames in reply to it are appended to `outgoing`.
    pub(super) fn next(&mut self, outgoing: &mut Outgoing) -> Option<Result<Message, Error>> {
        if !self.tungstenite.can_read() {
            return Some(Err(Error::ConnectionClosed));
        }
        loop {
            match self.incoming.next()? {
                Piece::Text(text) => {
                    return Some(Utf8Bytes::try_from(text).map(Message::Text).map_err(Error::from));
                }
                Piece::Other(piece) => match self.read_piece(Some(&piece), outgoing) {
                    Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return Some(read),
                },
            }
        }
    }

    /// Returns the result of reading past the end of the stream.
    pub(super) fn end_of_stream(&mut self, outgoing: &mut Outgoing) -> Result<Message, Error> {
        self.read_piece(None, outgoing)
    }

    /// Feeds tungstenite a piece of a frame, or the end of the stream.
    fn read_piece(
        &mut self,
        piece: Option<&[u8]>,
        outgoing: &mut Outgoing,
    ) -> Result<Message, Error> {
        let mut stream = PieceStream { piece, outgoing };
        let message = self.tungstenite.read(&mut stream)?;
        match self.tungstenite.flush(&mut stream) {
            Ok(()) | Err(Error::ConnectionClosed) => Ok(message),
            Err(error) => Err(error),
        }
    }
}

/// A stream that yields one piece and then `WouldBlock`.
struct PieceStream<'a> {
    /// `None` at the end of the stream.
    piece: Option<&'a [u8]>,
    outgoing: &'a mut Outgoing,
}

impl Read for PieceStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.piece {
            None => Ok(0),
            Some([]) => Err(io::ErrorKind::WouldBlock.into()),
            Some(piece) => piece.read(bytes),
        }
    }
}

impl Write for PieceStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.encoded(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;
    use tokio_tungstenite::tungstenite::WebSocket;

    use super::*;

    const MAX_MESSAGE_BYTES: usize = 70_000;

    /// A client frame, valid or not.
    fn frame(first: u8, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
        let masked = if mask.is_some() { 0x80 } else { 0 };
        let mut frame = vec![first];
        match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
            (Ok(length @ ..126), _) => frame.push(masked | length),
            (_, Ok(length)) => {
                frame.push(masked | 126);
                frame.extend(length.to_be_bytes());
            }
            _ => {
                frame.push(masked | 127);
                frame.extend((payload.len() as u64).to_be_bytes());
            }
        }
        frame.extend(mask.iter().flatten());
        let mask = mask.unwrap_or_default();
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    /// Decodes `sent` with tungstenite alone: the messages, the final error, and the reply bytes.
    fn by_tungstenite(sent: &[u8]) -> (Vec<Message>, String, Vec<u8>) {
        struct Peer(Cursor<Vec<u8>>, Vec<u8>);
        impl Read for Peer {
            fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
                self.0.read(bytes)
            }
        }
        impl Write for Peer {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.1.write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let peer = Peer(Cursor::new(sent.to_vec()), Vec::new());
        let mut socket = WebSocket::from_raw_socket(peer, Role::Server, Some(config));
        let mut messages = Vec::new();
        loop {
            match socket.read() {
                Ok(message) => messages.push(message),
                Err(error) => return (messages, error.to_string(), socket.get_ref().1.clone()),
            }
        }
    }

    /// Decodes `sent` with [`Messages`], in reads of `piece_bytes`.
    fn by_ours(sent: &[u8], piece_bytes: usize) -> (Vec<Message>, String, Vec<u8>) {
        let (mut ours, mut outgoing) = (Messages::new(MAX_MESSAGE_BYTES), Outgoing::default());
        let mut pieces = sent.chunks(piece_bytes);
        let mut messages = Vec::new();
        loop {
            let read = match ours.next(&mut outgoing) {
                Some(read) => read,
                None => match pieces.next() {
                    Some(piece) => {
                        ours.append(piece);
                        continue;
                    }
                    None => ours.end_of_stream(&mut outgoing),
                },
            };
            match read {
                Ok(message) => messages.push(message),
                Err(error) => return (messages, error.to_string(), outgoing.unwritten().to_vec()),
            }
        }
    }

    fn payload() -> impl Strategy<Value = Vec<u8>> {
        let text = |length| "\\PC".prop_map(move |text| text.repeat(length).into_bytes());
        let lengths = prop_oneof![0..200_usize, 120..130_usize, 65_530..65_540_usize];
        prop_oneof![
            8 => lengths.prop_flat_map(text),
            1 => prop::collection::vec(any::<u8>(), 0..300),
            1 => (MAX_MESSAGE_BYTES - 2..MAX_MESSAGE_BYTES + 3).prop_map(|length| vec![b'x'; length]),
        ]
    }

    fn any_frame() -> impl Strategy<Value = Vec<u8>> {
        let first = prop_oneof![
            30 => Just(0x81), // text
            5 => Just(0x01), // first fragment of a text
            8 => prop::sample::select(vec![0x00, 0x80]), // continuation, last fragment
            3 => Just(0x82), // binary
            4 => prop::sample::select(vec![0x89, 0x8A]), // ping, pong
            1 => Just(0x88), // close
            1 => any::<u8>(),
        ];
        let mask = prop_oneof![40 => any::<[u8; 4]>().prop_map(Some), 1 => Just(None)];
        (first, mask, payload()).prop_map(|(first, mask, payload)| {
            let is_control = first & 0x08 != 0;
            let length = if is_control { payload.len().min(125) } else { payload.len() };
            frame(first, mask, &payload[..length])
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// For any frames in any reads, we decode what tungstenite alone would.
        #[test]
        fn agrees_with_tungstenite(
            frames in prop::collection::vec(any_frame(), 1..12),
            piece_bytes in prop_oneof![1..9_usize, 10..5000_usize, Just(64 << 10)],
            cut in 0..40_usize,
        ) {
            let mut sent = frames.concat();
            sent.truncate(sent.len().saturating_sub(cut.saturating_sub(20)));
            prop_assert_eq!(by_ours(&sent, piece_bytes), by_tungstenite(&sent));
        }
    }

    #[test]
    fn answers_a_ping_immediately() {
        let (mut ours, mut outgoing) = (Messages::new(MAX_MESSAGE_BYTES), Outgoing::default());
        ours.append(&frame(0x89, Some([1, 2, 3, 4]), b"hello"));
        assert_eq!(ours.next(&mut outgoing).unwrap().unwrap(), Message::Ping("hello".into()));
        assert_eq!(outgoing.unwritten(), b"\x8A\x05hello");
    }
}
