//! A connection that publishes in this process.

use std::collections::VecDeque;
use std::sync::Arc;

use prombus_bus::{Bus, Connection, PendingCommit, PublishBatch};
use prombus_proto::{NewEvent, Payload, Topic};
use tokio::sync::Notify;

use crate::BenchError;
use crate::port::{Events, PublishPort};

/// Frames that are queued together are submitted in one batch, as the gateway does with frames that
/// it reads together. The limit lets the bus store some while others are being prepared.
const MAX_BATCH_FRAMES: usize = 100;

pub(crate) struct InProcessPublisher {
    bus: Arc<Bus>,
    connection: Connection,
    topics: Vec<Topic>,
    payloads: Vec<Payload>,
    /// With the number of frames in each batch.
    queued: VecDeque<(PublishBatch, usize)>,
    submitted: VecDeque<(PendingCommit, usize)>,
}

impl InProcessPublisher {
    pub(super) fn new(bus: Arc<Bus>, topics: &[Topic]) -> Self {
        let connection = bus.connect();
        let (payloads, queued, submitted) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { bus, connection, topics: topics.to_vec(), payloads, queued, submitted }
    }
}

impl PublishPort for InProcessPublisher {
    fn enqueue(&mut self, events: &Events<'_>) -> Result<(), BenchError> {
        self.payloads.clear();
        for number in events.numbers() {
            let mut payload = Vec::with_capacity(events.payload_bytes());
            events.write(number, &mut payload);
            self.payloads.push(Payload::parse(payload.into())?);
        }
        if self.queued.back().is_none_or(|(_, frames)| *frames == MAX_BATCH_FRAMES) {
            self.queued.push_back((PublishBatch::new(), 0));
        }
        if let Some((batch, frames)) = self.queued.back_mut() {
            let topic = &self.topics[events.topic];
            let new = self.payloads.drain(..).map(NewEvent::of);
            batch.push(&self.bus, &self.connection, topic, new)?;
            *frames += 1;
        }
        Ok(())
    }

    async fn exchange(&mut self, wake: &Notify) -> Result<usize, BenchError> {
        while let Some((batch, frames)) = self.queued.pop_front() {
            self.submitted.push_back((batch.submit(&self.bus).await?, frames));
        }
        let Some((submitted, frames)) = self.submitted.front_mut() else {
            wake.notified().await;
            return Ok(0);
        };
        let frames = *frames;
        tokio::select! {
            stored = submitted.stored() => stored?,
            () = wake.notified() => return Ok(0),
        };
        self.submitted.pop_front();
        Ok(frames)
    }
}
