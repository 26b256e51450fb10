//! A connection that consumes over the wire.

use prombus_proto::frame::{StartFrom, Subscribe, SubscribeOptions};
use prombus_proto::{ClientFrame, ClientOp, Group, Topic};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::{Glimpse, Socket, refusal};
use crate::BenchError;
use crate::load::event_text::EventText;
use crate::port::{ConsumePort, Delivered};
use crate::target::{LEASE, lease_lost};

pub(crate) struct WireConsumer {
    socket: Socket,
    group: Group,
    came: Vec<Utf8Bytes>,
    /// Whether `came` is not looked at yet.
    is_early: bool,
}

impl WireConsumer {
    /// Subscribes to `topics`, each with room for `in_flight` events. What is delivered meanwhile
    /// is kept for the first turn.
    pub(crate) async fn new(
        mut socket: Socket,
        topics: &[Topic],
        group: &Group,
        in_flight: u32,
    ) -> Result<Self, BenchError> {
        for topic in topics {
            let mut json = Vec::new();
            subscribe(topic, group, in_flight).write(&mut json);
            socket.put(json)?;
        }
        let (mut early, mut came) = (Vec::new(), Vec::new());
        let mut unanswered = topics.len();
        while unanswered > 0 {
            socket.turn(&mut came).await?;
            for frame in came.drain(..) {
                match Glimpse::of(&frame) {
                    Glimpse::Ok => unanswered -= 1,
                    Glimpse::Event { .. } => early.push(frame),
                    Glimpse::Stale | Glimpse::Other => return Err(refusal(&frame)),
                }
            }
        }
        let is_early = !early.is_empty();
        Ok(Self { socket, group: group.clone(), came: early, is_early })
    }

    /// Leaves, and has the server know that before anybody goes on.
    pub(crate) async fn leave(self) {
        self.socket.close().await;
    }
}

impl ConsumePort for WireConsumer {
    async fn turn(
        &mut self,
        text: &EventText,
        delivered: &mut Vec<Delivered>,
    ) -> Result<u64, BenchError> {
        if !std::mem::take(&mut self.is_early) {
            self.came.clear();
            self.socket.turn(&mut self.came).await?;
        }
        let mut acked = 0;
        for frame in &self.came {
            match Glimpse::of(frame) {
                Glimpse::Ok => acked += 1,
                Glimpse::Event { topic, id, event } => {
                    let json = event.as_bytes();
                    let bytes = json.len() as u64;
                    delivered.push(Delivered { sent_at: text.sent_at(json), bytes });
                    let group = &self.group;
                    let ack = format!(
                        r#"{{"op":"ACK","topic":"{topic}","group":"{group}","id":"{id}"}}"#
                    );
                    self.socket.put(ack.into_bytes())?;
                }
                Glimpse::Stale => return Err(lease_lost()),
                Glimpse::Other => return Err(refusal(frame)),
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
