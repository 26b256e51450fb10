//! NATS JetStream with file storage.
//!
//! Answers to publishes come to one inbox and are counted there, which costs the client less than a future
//! for each of them. A batch is an atomic one: all or none, one answer.

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
use crate::event;
use crate::session::{Publisher, Result, Subscriber};

const STREAM: &str = "EVENTS";

async fn connected(address: SocketAddr) -> Result<Client> {
    Ok(async_nats::connect(address.to_string()).await?)
}

/// Makes the stream, and the consumer with at most `window` events that are not acknowledged.
pub(crate) async fn prepare(address: SocketAddr, window: u64) -> Result<()> {
    let context = jetstream::new(connected(address).await?);
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

/// Publishes on one connection.
pub(crate) struct Publishing {
    client: Client,
    topic: Subject,
    inbox: Subject,
    answers: async_nats::Subscriber,
    /// Events in each publish that is not answered. All have the same number of them.
    batch: u64,
    batches: u64,
}

impl Publishing {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let client = connected(address).await?;
        let inbox = Subject::from(client.new_inbox());
        let answers = client.subscribe(inbox.clone()).await?;
        client.flush().await?;
        Ok(Self { client, topic: Subject::from(TOPIC), inbox, answers, batch: 1, batches: 0 })
    }

    /// All but the last go without an answer, as the protocol of atomic batches allows.
    async fn publish_batch(&mut self, numbers: Range<u64>) -> Result<()> {
        self.batches += 1;
        let id = format!("batch-{}", self.batches);
        for (place, number) in numbers.clone().enumerate() {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Batch-Id", id.as_str());
            headers.insert("Nats-Batch-Sequence", (place + 1).to_string());
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

fn expect_stored(answer: &async_nats::Message) -> Result<()> {
    if answer.payload.starts_with(br#"{"stream":"#) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer.payload);
    Err(format!("not stored: {said} {:?}", answer.status).into())
}

impl Publisher for Publishing {
    async fn publish(&mut self, numbers: Range<u64>) -> Result<()> {
        self.batch = numbers.end - numbers.start;
        if self.batch > 1 {
            return self.publish_batch(numbers).await;
        }
        let payload = event::text(numbers.start).into();
        let (topic, inbox) = (self.topic.clone(), self.inbox.clone());
        Ok(self.client.publish_with_reply(topic, inbox, payload).await?)
    }

    /// The client does that by itself as soon as it gets to run.
    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    async fn answered(&mut self) -> Result<u64> {
        let first = self.answers.next().await.ok_or("the connection is closed")?;
        expect_stored(&first)?;
        let mut events = self.batch;
        while let Some(Some(answer)) = self.answers.next().now_or_never() {
            expect_stored(&answer)?;
            events += self.batch;
        }
        Ok(events)
    }
}

/// Consumes on one connection, by a pull consumer.
pub(crate) struct Subscribing {
    consumer: Consumer<ConsumerConfig>,
    messages: Messages,
    delivered: Vec<Message>,
    acknowledged: u64,
}

impl Subscribing {
    pub(crate) async fn connect(address: SocketAddr, window: u64) -> Result<Self> {
        let context = jetstream::new(connected(address).await?);
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

impl Subscriber for Subscribing {
    async fn delivered(&mut self, numbers: &mut Vec<u64>) -> Result<()> {
        let first = self.messages.next().await.ok_or("the consumer is gone")??;
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

    /// Acknowledgements are not answered, so the consumer is asked how far it is.
    async fn settled(&mut self) -> Result<()> {
        while self.consumer.info().await?.ack_floor.stream_sequence < self.acknowledged {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}
