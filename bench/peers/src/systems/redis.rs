//! Redis Streams with an append-only file.
//!
//! Commands go in pipelines of 100, each with a reply of its own: the fastest way to use the client. A batch is a
//! transaction: all or none.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value};

use super::{GROUP, TOPIC};
use crate::client::{Publisher, Result, Subscriber};
use crate::event;

/// Commands per pipeline.
const PIPELINE: usize = 100;
const CONSUMER: &str = "client";

type Pending<T> = Pin<Box<dyn Future<Output = std::result::Result<T, RedisError>>>>;

async fn connect(address: SocketAddr) -> Result<MultiplexedConnection> {
    // A blocking read takes longer than the default of half a second.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let client = Client::open(format!("redis://{address}/"))?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Creates the stream and its group.
pub(crate) async fn prepare(address: SocketAddr) -> Result<()> {
    let mut connection = connect(address).await?;
    let mut create = redis::cmd("XGROUP");
    create.arg("CREATE").arg(TOPIC).arg(GROUP).arg("0").arg("MKSTREAM");
    Ok(create.query_async(&mut connection).await?)
}

fn add(number: u64) -> Cmd {
    let mut add = redis::cmd("XADD");
    add.arg(TOPIC).arg("*").arg("payload").arg(event::text(number));
    add
}

/// Pipelines on one connection, and those without a reply.
struct Pipelines {
    connection: MultiplexedConnection,
    next: Pipeline,
    in_next: usize,
    sent: FuturesOrdered<Pending<()>>,
    /// The number of commands of each of `sent`.
    counts: VecDeque<u64>,
}

impl Pipelines {
    async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            connection: connect(address).await?,
            next: Pipeline::new(),
            in_next: 0,
            sent: FuturesOrdered::new(),
            counts: VecDeque::new(),
        })
    }

    fn push(&mut self, command: Cmd) {
        self.next.add_command(command).ignore();
        self.in_next += 1;
        if self.in_next == PIPELINE {
            self.send();
        }
    }

    fn send(&mut self) {
        if self.in_next == 0 {
            return;
        }
        let pipeline = std::mem::replace(&mut self.next, Pipeline::new());
        self.counts.push_back(self.in_next as u64);
        self.in_next = 0;
        let mut connection = self.connection.clone();
        self.sent
            .push_back(Box::pin(async move { pipeline.query_async::<()>(&mut connection).await }));
    }

    /// Waits for a reply if there are pipelines without one, takes all that have arrived, and returns the number of
    /// their commands. Polling also drives the sending: the futures do nothing until then.
    async fn replies(&mut self) -> Result<u64> {
        let mut count = 0;
        if let Some(reply) = self.sent.next().await {
            reply?;
            count += self.counts.pop_front().unwrap_or(0);
        }
        while let Some(Some(reply)) = self.sent.next().now_or_never() {
            reply?;
            count += self.counts.pop_front().unwrap_or(0);
        }
        Ok(count)
    }
}

pub(crate) struct RedisPublisher(Pipelines);

impl RedisPublisher {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self(Pipelines::connect(address).await?))
    }
}

impl Publisher for RedisPublisher {
    async fn publish(&mut self, numbers: Range<u64>) -> Result<()> {
        if numbers.end - numbers.start == 1 {
            self.0.push(add(numbers.start));
            return Ok(());
        }
        self.0.send();
        self.0.next.atomic();
        for number in numbers {
            self.0.next.add_command(add(number)).ignore();
            self.0.in_next += 1;
        }
        self.0.send();
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        self.0.send();
        Ok(())
    }

    async fn confirmed(&mut self) -> Result<u64> {
        self.0.replies().await
    }
}

/// Reads on one connection, where reads block, and acknowledges on another.
pub(crate) struct RedisSubscriber {
    connection: MultiplexedConnection,
    window: u64,
    reading: Option<Pending<Value>>,
    ids: Vec<Vec<u8>>,
    acknowledgements: Pipelines,
}

impl RedisSubscriber {
    pub(crate) async fn connect(address: SocketAddr, window: u64) -> Result<Self> {
        Ok(Self {
            connection: connect(address).await?,
            window,
            reading: None,
            ids: Vec::new(),
            acknowledgements: Pipelines::connect(address).await?,
        })
    }

    /// Returns the pending read. It outlives a dropped `receive`: the server counts events as delivered once it has sent
    /// them.
    fn read(&mut self) -> &mut Pending<Value> {
        self.reading.get_or_insert_with(|| {
            let mut read = redis::cmd("XREADGROUP");
            read.arg("GROUP").arg(GROUP).arg(CONSUMER).arg("COUNT").arg(self.window);
            read.arg("BLOCK").arg(1000).arg("STREAMS").arg(TOPIC).arg(">");
            let mut connection = self.connection.clone();
            Box::pin(async move { read.query_async(&mut connection).await })
        })
    }
}

/// Parses `[[topic, [[id, [field, value]], …]]]`.
fn ids_and_numbers(reply: Value, ids: &mut Vec<Vec<u8>>, numbers: &mut Vec<u64>) -> Option<()> {
    let Value::Array(mut streams) = reply else { return None };
    let Value::Array(mut stream) = streams.pop()? else { return None };
    let Value::Array(entries) = stream.pop()? else { return None };
    for entry in entries {
        let Value::Array(mut entry) = entry else { return None };
        let Value::Array(mut fields) = entry.pop()? else { return None };
        let Value::BulkString(payload) = fields.pop()? else { return None };
        let Value::BulkString(id) = entry.pop()? else { return None };
        numbers.push(event::number_in(&payload)?);
        ids.push(id);
    }
    Some(())
}

impl Subscriber for RedisSubscriber {
    async fn receive(&mut self, numbers: &mut Vec<u64>) -> Result<()> {
        while self.ids.is_empty() {
            let reply = self.read().await;
            self.reading = None;
            match reply? {
                Value::Nil => {} // BLOCK timed out
                reply => ids_and_numbers(reply, &mut self.ids, numbers)
                    .ok_or("unexpected reply to XREADGROUP")?,
            }
        }
        Ok(())
    }

    /// Also waits for the replies. The next read is under way meanwhile.
    async fn acknowledge(&mut self) -> Result<()> {
        for id in std::mem::take(&mut self.ids) {
            let mut acknowledge = redis::cmd("XACK");
            acknowledge.arg(TOPIC).arg(GROUP).arg(id);
            self.acknowledgements.push(acknowledge);
        }
        self.acknowledgements.send();
        let _ = self.read().now_or_never();
        self.wait_for_acks().await
    }

    async fn wait_for_acks(&mut self) -> Result<()> {
        while !self.acknowledgements.sent.is_empty() {
            self.acknowledgements.replies().await?;
        }
        Ok(())
    }
}
