//! The client of all measurements: blocking, by hand, with frames masked beforehand and answers only counted,
//! so that it never limits what is measured.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

/// Client frames that may wait for their answer.
const WINDOW: usize = 1000;
/// Frames in one write.
const CHUNK: usize = 250;

/// A masked frame with the given first byte (FIN and opcode).
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = header(first, payload.len() as u64, true);
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// The head of a frame, without its mask.
pub fn header(first: u8, length: u64, masked: bool) -> Vec<u8> {
    let bit = if masked { 0x80 } else { 0 };
    let mut header = vec![first];
    match length {
        0..126 => header.push(bit | length as u8),
        126..65536 => {
            header.push(bit | 126);
            header.extend((length as u16).to_be_bytes());
        }
        _ => {
            header.push(bit | 127);
            header.extend(length.to_be_bytes());
        }
    }
    header
}

/// A connected client.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes of the buffer that belong to a frame whose end has not arrived.
    held: usize,
}

impl Client {
    /// Connects and upgrades. `room` is the size of one read.
    pub fn connect(address: SocketAddr, room: usize) -> Self {
        let mut stream = TcpStream::connect(address).expect("server listens");
        stream.set_nodelay(true).expect("TCP");
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("request is sent");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("server answers");
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        Self { stream, buffer: vec![0; room], held: 0 }
    }

    /// Sends one text frame.
    pub fn send(&mut self, text: &[u8]) {
        self.stream.write_all(&frame(0x81, text)).expect("frame is sent");
    }

    /// Sends `frames` text frames and waits until each has an answer.
    pub fn publish(&mut self, text: &[u8], frames: usize) {
        let chunk = frame(0x81, text).repeat(CHUNK);
        let (mut sent, mut answered) = (0, 0);
        while answered < frames {
            while sent < frames && sent + CHUNK <= answered + WINDOW {
                self.stream.write_all(&chunk).expect("frames are sent");
                sent += CHUNK;
            }
            answered += self.receive();
        }
        assert_eq!(answered, sent, "one answer a frame");
    }

    /// Reads until `frames` text frames have come.
    pub fn count(&mut self, frames: usize) {
        let mut counted = 0;
        while counted < frames {
            counted += self.receive();
        }
        assert_eq!(counted, frames, "not more than asked for");
    }

    /// One read; how many frames it completed.
    fn receive(&mut self) -> usize {
        let read = self.stream.read(&mut self.buffer[self.held..]).expect("server is there");
        assert!(read > 0, "server closed the connection");
        let end = self.held + read;
        let (mut at, mut frames) = (0, 0);
        while let Some(length) = frame_length(&self.buffer[at..end]) {
            assert_eq!(self.buffer[at], 0x81, "a text frame");
            at += length;
            frames += 1;
        }
        self.buffer.copy_within(at..end, 0);
        self.held = end - at;
        frames
    }
}

/// Length of the whole frame that the bytes start with, if they hold it.
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let length = match *bytes.get(1)? {
        126 => 4 + usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])),
        short => 2 + usize::from(short),
    };
    (length <= bytes.len()).then_some(length)
}
