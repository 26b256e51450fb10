//! A connection that consumes over the wire.

use prombus_proto::frame::{StartFrom, Subscribe, SubscribeOptions};
use prombus_proto::{ClientFrame, ClientOp, Group, Topic};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::{FramePeek, Socket, frame_error};
use crate::BenchError;
use crate::load::event_text::EventText;
use crate::port::{ConsumePort, Delivered};
use crate::target::{LEASE, lease_lost};

pub(crate) struct WireConsumer {
    socket: Socket,
    group: Group,
    received: Vec<Utf8Bytes>,
    /// Whether `received` has deliveries that arrived before the first exchange.
    has_early: bool,
}

impl WireConsumer {
    /// Subscribes to `topics`, each with room for `in_flight` events. Events that are delivered
    /// meanwhile are returned by the first exchange.
    pub(crate) async fn new(
        mut socket: Socket,
        topics: &[Topic],
        group: &Group,
        in_flight: u32,
    ) -> Result<Self, BenchError> {
        for topic in topics {
            let mut json = Vec::new();
            subscribe(topic, group, in_flight).write(&mut json);
            socket.enqueue(json)?;
        }
        let (mut early, mut received) = (Vec::new(), Vec::new());
        let mut unanswered = topics.len();
        while unanswered > 0 {
            socket.exchange(&mut received).await?;
            for frame in received.drain(..) {
                match FramePeek::of(&frame) {
                    FramePeek::Ok => unanswered -= 1,
                    FramePeek::Event { .. } => early.push(frame),
                    FramePeek::Stale | FramePeek::Other => return Err(frame_error(&frame)),
                }
            }
        }
        let has_early = !early.is_empty();
        Ok(Self { socket, group: group.clone(), received: early, has_early })
    }

    /// Closes the connection, so that the server releases the subscriptions.
    pub(crate) async fn leave(self) {
        self.socket.close().await;
    }
}

impl ConsumePort for WireConsumer {
    async fn exchange(
        &mut self,
        text: &EventText,
        delivered: &mut Vec<Delivered>,
    ) -> Result<u64, BenchError> {
        if !std::mem::take(&mut self.has_early) {
            self.received.clear();
            self.socket.exchange(&mut self.received).await?;
        }
        let mut acked = 0;
        for frame in &self.received {
            match FramePeek::of(frame) {
                FramePeek::Ok => acked += 1,
                FramePeek::Event { topic, id, event } => {
                    let json = event.as_bytes();
                    let bytes = json.len() as u64;
                    delivered.push(Delivered { sent_at: text.sent_at(json), bytes });
                    let group = &self.group;
                    let ack = format!(
                        r#"{{"op":"ACK","topic":"{topic}","group":"{group}","id":"{id}"}}"#
                    );
                    self.socket.enqueue(ack.into_bytes())?;
                }
                FramePeek::Stale => return Err(lease_lost()),
                FramePeek::Other => return Err(frame_error(frame)),
            }
        }
        Ok(acked)
    }
}

fn subscribe(topic: &Topic, group: &Group, in_flight: u32) -> ClientFrame {
    let opts = SubscribeOptions {
        from: StartFrom::Latest,
        max_in_flight: Some(in_flight),
        ack_timeout_ms: u64::try_from(LEASE.as_millis()).ok(),
        max_attempts: None,
    };
    let (topic, group) = (topic.clone(), group.clone());
    ClientFrame { corr: None, op: ClientOp::Subscribe(Subscribe { topic, group, opts }) }
}
