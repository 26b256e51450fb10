//! fastwebsockets, split into halves: its read may not be dropped half-way, so the answers of a burst have to
//! leave while a read is pending.

use std::{future::Future, pin::pin, task::Poll};

use fastwebsockets::{
    FragmentCollectorRead, Frame, OpCode, Payload, Role, WebSocketError, after_handshake_split,
};
use tokio::{io::BufWriter, net::TcpStream};

use crate::work::{ANSWER, Ask, GROUP, MAX_MESSAGE, ask, event};

/// It writes every frame at once; a buffer below it gathers them.
const WRITE_BUFFER: usize = 64 * 1024;

/// Its frames borrow, so texts can be made in one place.
fn text<'a>(buffer: &'a mut Vec<u8>, text: &str) -> Frame<'a> {
    buffer.clear();
    buffer.extend_from_slice(text.as_bytes());
    Frame::text(Payload::Borrowed(buffer))
}

pub async fn session(io: TcpStream) -> Result<(), WebSocketError> {
    let (read, write) = io.into_split();
    let write = BufWriter::with_capacity(WRITE_BUFFER, write);
    let (mut read, mut write) = after_handshake_split(read, write, Role::Server);
    read.set_max_message_size(MAX_MESSAGE);
    let mut read = FragmentCollectorRead::new(read);
    let mut buffer = Vec::new();
    let event = event();
    loop {
        let mut no_control_frames = async |_: Frame<'_>| Ok::<(), WebSocketError>(());
        let mut reading = pin!(read.read_frame(&mut no_control_frames));
        let ready = std::future::poll_fn(|context| match reading.as_mut().poll(context) {
            Poll::Ready(frame) => Poll::Ready(Some(frame)),
            Poll::Pending => Poll::Ready(None),
        });
        let frame = match ready.await {
            Some(frame) => frame?,
            None => {
                write.flush().await?;
                reading.await?
            }
        };
        match frame.opcode {
            OpCode::Text => {}
            OpCode::Close => return Ok(()),
            _ => continue,
        }
        match ask(&frame.payload) {
            Ask::Answer => {
                write.write_frame(text(&mut buffer, ANSWER)).await?;
            }
            Ask::Events(number) => {
                for sent in 1..=number {
                    write.write_frame(text(&mut buffer, &event)).await?;
                    if sent % GROUP == 0 {
                        write.flush().await?;
                    }
                }
            }
        }
    }
}
