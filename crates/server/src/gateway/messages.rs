//! The messages that one peer sends, found in what was read. No I/O.
//!
//! Texts of one frame are found by [`Incoming`]; the library gets the frames that are anything else: parts of
//! messages, pings, goodbyes, and what is wrong.

use std::io::{self, Read, Write};

use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig, WebSocketContext};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::incoming::{Incoming, Piece};
use super::outgoing::Outgoing;

pub(super) struct Messages {
    incoming: Incoming,
    library: WebSocketContext,
}

/// The size of the library's buffer, which every connection has and few use for more than a pong.
const LIBRARY_BYTES: usize = 256;

impl Messages {
    /// Messages of up to `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(LIBRARY_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(longest))
            .max_frame_size(Some(longest));
        let library = WebSocketContext::new(Role::Server, Some(config));
        Self { incoming: Incoming::new(longest), library }
    }

    pub(super) fn append(&mut self, read: &[u8]) {
        self.incoming.append(read);
    }

    /// The next message, if all of it has come. What the protocol says to it is written to `outgoing`.
    pub(super) fn next(&mut self, outgoing: &mut Outgoing) -> Option<Result<Message, Error>> {
        if !self.library.can_read() {
            return Some(Err(Error::ConnectionClosed));
        }
        loop {
            match self.incoming.next()? {
                Piece::Text(text) => {
                    return Some(Utf8Bytes::try_from(text).map(Message::Text).map_err(Error::from));
                }
                Piece::OfOther(piece) => match self.read_by_library(Some(&piece), outgoing) {
                    Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return Some(read),
                },
            }
        }
    }

    /// What it means that nothing will come any more.
    pub(super) fn end(&mut self, outgoing: &mut Outgoing) -> Result<Message, Error> {
        self.read_by_library(None, outgoing)
    }

    /// What the library makes of a piece of a frame, or of the end.
    fn read_by_library(
        &mut self,
        piece: Option<&[u8]>,
        outgoing: &mut Outgoing,
    ) -> Result<Message, Error> {
        let mut stream = Pieces { piece, outgoing };
        let message = self.library.read(&mut stream)?;
        match self.library.flush(&mut stream) {
            Ok(()) | Err(Error::ConnectionClosed) => Ok(message),
            Err(error) => Err(error),
        }
    }
}

/// A stream of one piece, behind which more would have to be waited for.
struct Pieces<'a> {
    /// Nothing at the end of the stream.
    piece: Option<&'a [u8]>,
    outgoing: &'a mut Outgoing,
}

impl Read for Pieces<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.piece {
            None => Ok(0),
            Some([]) => Err(io::ErrorKind::WouldBlock.into()),
            Some(piece) => piece.read(bytes),
        }
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.frames(bytes);
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

    const LONGEST: usize = 70_000;

    /// A frame as a client sends it, or as it must not.
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

    /// What a server says by the library alone: the messages, why there are no more, and what it answers.
    fn by_library(sent: &[u8]) -> (Vec<Message>, String, Vec<u8>) {
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
            .max_message_size(Some(LONGEST))
            .max_frame_size(Some(LONGEST));
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

    /// The same by ours, from what comes in pieces of `piece_bytes`.
    fn by_ours(sent: &[u8], piece_bytes: usize) -> (Vec<Message>, String, Vec<u8>) {
        let (mut ours, mut outgoing) = (Messages::new(LONGEST), Outgoing::default());
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
                    None => ours.end(&mut outgoing),
                },
            };
            match read {
                Ok(message) => messages.push(message),
                Err(error) => return (messages, error.to_string(), outgoing.to_write().to_vec()),
            }
        }
    }

    fn payload() -> impl Strategy<Value = Vec<u8>> {
        let text = |length| "\\PC".prop_map(move |text| text.repeat(length).into_bytes());
        let lengths = prop_oneof![0..200_usize, 120..130_usize, 65_530..65_540_usize];
        prop_oneof![
            8 => lengths.prop_flat_map(text),
            1 => prop::collection::vec(any::<u8>(), 0..300),
            1 => (LONGEST - 2..LONGEST + 3).prop_map(|length| vec![b'x'; length]),
        ]
    }

    fn any_frame() -> impl Strategy<Value = Vec<u8>> {
        let first = prop_oneof![
            30 => Just(0x81), // a text
            5 => Just(0x01), // the first part of one
            8 => prop::sample::select(vec![0x00, 0x80]), // more of it, its end
            3 => Just(0x82), // binary
            4 => prop::sample::select(vec![0x89, 0x8A]), // ping, pong
            1 => Just(0x88), // goodbye
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

        /// Whatever a peer sends, and however it comes: we see what the library alone would.
        #[test]
        fn are_what_the_library_sees(
            frames in prop::collection::vec(any_frame(), 1..12),
            piece_bytes in prop_oneof![1..9_usize, 10..5000_usize, Just(64 << 10)],
            cut in 0..40_usize,
        ) {
            let mut sent = frames.concat();
            sent.truncate(sent.len().saturating_sub(cut.saturating_sub(20)));
            prop_assert_eq!(by_ours(&sent, piece_bytes), by_library(&sent));
        }
    }

    #[test]
    fn a_peer_gets_its_pong_at_once() {
        let (mut ours, mut outgoing) = (Messages::new(LONGEST), Outgoing::default());
        ours.append(&frame(0x89, Some([1, 2, 3, 4]), b"hello"));
        assert_eq!(ours.next(&mut outgoing).unwrap().unwrap(), Message::Ping("hello".into()));
        assert_eq!(outgoing.to_write(), b"\x8A\x05hello");
    }
}
