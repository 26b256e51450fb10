//! A connection that publishes over the wire.

use prombus_proto::Topic;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::{FramePeek, Socket, frame_error};
use crate::BenchError;
use crate::port::{Events, PublishPort};

pub(crate) struct WirePublisher {
    socket: Socket,
    /// The start of a frame, by topic.
    heads: Vec<String>,
    is_batched: bool,
    received: Vec<Utf8Bytes>,
}

impl WirePublisher {
    pub(crate) fn new(socket: Socket, topics: &[Topic], is_batched: bool) -> Self {
        let heads = topics.iter().map(|topic| {
            let name = if is_batched { "events" } else { "payload" };
            format!(r#"{{"op":"PUBLISH","topic":"{topic}","{name}":"#)
        });
        Self { socket, heads: heads.collect(), is_batched, received: Vec::new() }
    }
}

impl PublishPort for WirePublisher {
    fn enqueue(&mut self, events: &Events<'_>) -> Result<(), BenchError> {
        let mut frame = Vec::with_capacity(512);
        frame.extend_from_slice(self.heads[events.topic].as_bytes());
        if self.is_batched {
            for number in events.numbers() {
                let before: &[u8] = if number == events.frame.first {
                    b"[{\"payload\":"
                } else {
                    b",{\"payload\":"
                };
                frame.extend_from_slice(before);
                events.write(number, &mut frame);
                frame.push(b'}');
            }
            frame.push(b']');
        } else {
            events.write(events.frame.first, &mut frame);
        }
        frame.push(b'}');
        self.socket.enqueue(frame)
    }

    async fn exchange(&mut self, wake: &Notify) -> Result<usize, BenchError> {
        self.received.clear();
        tokio::select! {
            biased;
            turn = self.socket.exchange(&mut self.received) => turn?,
            () = wake.notified() => return Ok(0),
        }
        match self.received.iter().find(|frame| FramePeek::of(frame) != FramePeek::Ok) {
            Some(other) => Err(frame_error(other)),
            None => Ok(self.received.len()),
        }
    }
}
