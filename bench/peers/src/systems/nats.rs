//! NATS JetStream with file storage.
//!
//! Confirmations arrive in one inbox and are counted there, which costs the client less than a future per publish. A
//! batch is an atomic batch: all or none, with one confirmation.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::{Config as ConsumerConfig, Stream as Messages};
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::stream::{Config as StreamConfig, StorageType};
use async_nats::jetstream::{self, Message};
use async_nats::{Client, HeaderMap, Subject};
use futures_util::{FutureExt, StreamExt};

use super::{GROUP, TOPIC};
use crate::client::{Publisher, Result, Subscriber};
use crate::event;

const STREAM: &str = "EVENTS";

async fn connect(address: SocketAddr) -> Result<Client> {
    Ok(async_nats::connect(address.to_string()).await?)
}

/// Creates the stream, and the consumer with at most `window` unacknowledged events.
pub(crate) async fn prepare(address: SocketAddr, window: u64) -> Result<()> {
    let context = jetstream::new(connect(address).await?);
    let stream = context
        .create_stream(StreamConfig {
            name: STREAM.to_owned(),
            subjects: vec![TOPIC.to_owned()],
            storage: StorageType::File,
            allow_atomic_publish: true,
            ..StreamConfig::default()
        })
        .await?;
    stream
        .create_consumer(ConsumerConfig {
            durable_name: Some(GROUP.to_owned()),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            max_ack_pending: i64::try_from(window)?,
            ..ConsumerConfig::default()
        })
        .await?;
    Ok(())
}

pub(crate) struct NatsPublisher {
    client: Client,
    topic: Subject,
    inbox: Subject,
    confirmations: async_nats::Subscriber,
    /// Events per publish, the same for all unconfirmed ones.
    batch: u64,
    batches: u64,
}

impl NatsPublisher {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let client = connect(address).await?;
        let inbox = Subject::from(client.new_inbox());
        let confirmations = client.subscribe(inbox.clone()).await?;
        client.flush().await?;
        Ok(Self { client, topic: Subject::from(TOPIC), inbox, confirmations, batch: 1, batches: 0 })
    }

    /// Asks only for the confirmation of the last event, as the protocol of atomic batches allows.
    async fn publish_batch(&mut self, numbers: Range<u64>) -> Result<()> {
        self.batches += 1;
        let id = format!("batch-{}", self.batches);
        for (index, number) in numbers.clone().enumerate() {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Batch-Id", id.as_str());
            headers.insert("Nats-Batch-Sequence", (index + 1).to_string());
            let topic = self.topic.clone();
            let payload = event::text(number).into();
            if number + 1 == numbers.end {
                headers.insert("Nats-Batch-Commit", "1");
                let inbox = self.inbox.clone();
                self.client.publish_with_reply_and_headers(topic, inbox, headers, payload).await?;
            } else {
                self.client.publish_with_headers(topic, headers, payload).await?;
            }
        }
        Ok(())
    }
}

fn expect_stored(confirmation: &async_nats::Message) -> Result<()> {
    if confirmation.payload.starts_with(br#"{"stream":"#) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&confirmation.payload);
    Err(format!("not stored: {text} {:?}", confirmation.status).into())
}

impl Publisher for NatsPublisher {
    async fn publish(&mut self, numbers: Range<u64>) -> Result<()> {
        self.batch = numbers.end - numbers.start;
        if self.batch > 1 {
            return self.publish_batch(numbers).await;
        }
        let payload = event::text(numbers.start).into();
        let (topic, inbox) = (self.topic.clone(), self.inbox.clone());
        Ok(self.client.publish_with_reply(topic, inbox, payload).await?)
    }

    /// The client flushes as soon as its task runs.
    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    async fn confirmed(&mut self) -> Result<u64> {
        let first = self.confirmations.next().await.ok_or("the connection is closed")?;
        expect_stored(&first)?;
        let mut events = self.batch;
        while let Some(Some(confirmation)) = self.confirmations.next().now_or_never() {
            expect_stored(&confirmation)?;
            events += self.batch;
        }
        Ok(events)
    }
}

/// Consumes with a pull consumer.
pub(crate) struct NatsSubscriber {
    consumer: Consumer<ConsumerConfig>,
    messages: Messages,
    delivered: Vec<Message>,
    acknowledged: u64,
}

impl NatsSubscriber {
    pub(crate) async fn connect(address: SocketAddr, window: u64) -> Result<Self> {
        let context = jetstream::new(connect(address).await?);
        let consumer: Consumer<ConsumerConfig> =
            context.get_consumer_from_stream(GROUP, STREAM).await?;
        let messages =
            consumer.stream().max_messages_per_batch(usize::try_from(window)?).messages().await?;
        Ok(Self { consumer, messages, delivered: Vec::new(), acknowledged: 0 })
    }

    fn take(&mut self, message: Message, numbers: &mut Vec<u64>) -> Result<()> {
        numbers.push(event::number_in(&message.payload).ok_or("not an event")?);
        self.delivered.push(message);
        Ok(())
    }
}

impl Subscriber for NatsSubscriber {
    async fn receive(&mut self, numbers: &mut Vec<u64>) -> Result<()> {
        let first = self.messages.next().await.ok_or("the consumer was closed")??;
        self.take(first, numbers)?;
        while let Some(Some(message)) = self.messages.next().now_or_never() {
            self.take(message?, numbers)?;
        }
        Ok(())
    }

    async fn acknowledge(&mut self) -> Result<()> {
        for message in self.delivered.drain(..) {
            message.ack().await?;
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// Polls the consumer's state, because acknowledgements are not confirmed.
    async fn wait_for_acks(&mut self) -> Result<()> {
        while self.consumer.info().await?.ack_floor.stream_sequence < self.acknowledged {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}
