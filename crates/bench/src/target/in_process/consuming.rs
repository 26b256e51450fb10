//! A connection that consumes in this process.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use prombus_bus::{Acked, Delivery, DeliveryQueue, GroupReply, Refusal, Subscription};
use prombus_proto::Topic;
use tokio::sync::oneshot::error::TryRecvError;

use crate::BenchError;
use crate::load::event_text::EventText;
use crate::port::{ConsumePort, Delivered};
use crate::target::lease_lost;

/// Bytes taken from the delivery queue at a time.
const TAKE_BYTES: usize = 256 << 10;

pub(crate) struct InProcessConsumer {
    delivery_queue: Arc<DeliveryQueue>,
    subscriptions: HashMap<Topic, Subscription>,
    /// Unanswered acknowledgements.
    acks: VecDeque<GroupReply<Acked>>,
    taken: Vec<Delivery>,
    json: Vec<u8>,
}

impl InProcessConsumer {
    pub(super) fn new(
        delivery_queue: Arc<DeliveryQueue>,
        subscriptions: HashMap<Topic, Subscription>,
    ) -> Self {
        let (taken, json) = (Vec::new(), Vec::new());
        Self { delivery_queue, subscriptions, acks: VecDeque::new(), taken, json }
    }

    /// Unsubscribes.
    pub(crate) async fn leave(self) {
        for subscription in self.subscriptions.into_values() {
            // The group's task may have ended.
            let _ = subscription.end().await;
        }
    }

    /// Waits for deliveries, or until the oldest acknowledgement is answered. Returns the number of
    /// answers.
    async fn wait(&mut self) -> Result<u64, BenchError> {
        let Some(oldest) = self.acks.front_mut() else {
            self.delivery_queue.filled().await;
            return Ok(0);
        };
        tokio::select! {
            () = self.delivery_queue.filled() => Ok(0),
            answer = oldest => {
                self.acks.pop_front();
                check(answer.map_err(|_| Refusal::shutting_down())?)?;
                Ok(1)
            }
        }
    }
}

impl ConsumePort for InProcessConsumer {
    async fn exchange(
        &mut self,
        text: &EventText,
        delivered: &mut Vec<Delivered>,
    ) -> Result<u64, BenchError> {
        let mut acked = 0;
        self.delivery_queue.take(TAKE_BYTES, &mut self.taken);
        if self.taken.is_empty() {
            acked += self.wait().await?;
            self.delivery_queue.take(TAKE_BYTES, &mut self.taken);
        }
        for delivery in self.taken.drain(..) {
            self.json.clear();
            delivery.event.write_json(&mut self.json);
            let bytes = self.json.len() as u64;
            delivered.push(Delivered { sent_at: text.sent_at(&self.json), bytes });
            if let Some(subscription) = self.subscriptions.get(&delivery.topic) {
                self.acks.push_back(subscription.ack(vec![delivery.event.id], None, None));
            }
        }
        while let Some(oldest) = self.acks.front_mut() {
            match oldest.try_recv() {
                Ok(answer) => check(answer)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Closed) => return Err(Refusal::shutting_down().into()),
            }
            self.acks.pop_front();
            acked += 1;
        }
        Ok(acked)
    }
}

/// Fails if the lease was lost.
fn check(answer: Result<Acked, Refusal>) -> Result<(), BenchError> {
    if answer?.stale.is_empty() { Ok(()) } else { Err(lease_lost()) }
}
