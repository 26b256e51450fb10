//! Redis Streams with an append-only file.
//!
//! Commands go in pipelines of 100, each with an answer of its own, which is how the client is fast. A batch is
//! a transaction: all or none.

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
use crate::event;
use crate::session::{Publisher, Result, Subscriber};

/// Commands of one pipeline.
const PIPELINE: usize = 100;
const NAME: &str = "client";

type Pending<T> = Pin<Box<dyn Future<Output = std::result::Result<T, RedisError>>>>;

async fn connected(address: SocketAddr) -> Result<MultiplexedConnection> {
    // The default of half a second is less than a blocking read takes.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(60)));
    let client = Client::open(format!("redis://{address}/"))?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Makes the stream and its group.
pub(crate) async fn prepare(address: SocketAddr) -> Result<()> {
    let mut connection = connected(address).await?;
    let mut create = redis::cmd("XGROUP");
    create.arg("CREATE").arg(TOPIC).arg(GROUP).arg("0").arg("MKSTREAM");
    Ok(create.query_async(&mut connection).await?)
}

fn add(number: u64) -> Cmd {
    let mut add = redis::cmd("XADD");
    add.arg(TOPIC).arg("*").arg("payload").arg(event::text(number));
    add
}

/// Pipelines on one connection, and those that are not answered.
struct Pipelines {
    connection: MultiplexedConnection,
    next: Pipeline,
    in_next: usize,
    sent: FuturesOrdered<Pending<()>>,
    /// What each of `sent` counts for.
    counts: VecDeque<u64>,
}

impl Pipelines {
    async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            connection: connected(address).await?,
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

    /// Waits for an answer if there is one to come, and takes all that are there. What was sent gets on its
    /// way here, for only what waits for it moves it.
    async fn answered(&mut self) -> Result<u64> {
        let mut count = 0;
        if let Some(answer) = self.sent.next().await {
            answer?;
            count += self.counts.pop_front().unwrap_or(0);
        }
        while let Some(Some(answer)) = self.sent.next().now_or_never() {
            answer?;
            count += self.counts.pop_front().unwrap_or(0);
        }
        Ok(count)
    }
}

/// Publishes on one connection.
pub(crate) struct Publishing(Pipelines);

impl Publishing {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self(Pipelines::connect(address).await?))
    }
}

impl Publisher for Publishing {
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

    async fn answered(&mut self) -> Result<u64> {
        self.0.answered().await
    }
}

/// Consumes on one connection, where reading blocks, and acknowledges on another.
pub(crate) struct Subscribing {
    connection: MultiplexedConnection,
    window: u64,
    reading: Option<Pending<Value>>,
    ids: Vec<Vec<u8>>,
    acknowledgements: Pipelines,
}

impl Subscribing {
    pub(crate) async fn connect(address: SocketAddr, window: u64) -> Result<Self> {
        Ok(Self {
            connection: connected(address).await?,
            window,
            reading: None,
            ids: Vec::new(),
            acknowledgements: Pipelines::connect(address).await?,
        })
    }

    /// Kept where dropping `delivered` does not lose it: the server counts as delivered what it has sent.
    fn read(&mut self) -> &mut Pending<Value> {
        self.reading.get_or_insert_with(|| {
            let mut read = redis::cmd("XREADGROUP");
            read.arg("GROUP").arg(GROUP).arg(NAME).arg("COUNT").arg(self.window);
            read.arg("BLOCK").arg(1000).arg("STREAMS").arg(TOPIC).arg(">");
            let mut connection = self.connection.clone();
            Box::pin(async move { read.query_async(&mut connection).await })
        })
    }
}

/// Reads `[[topic, [[id, [field, value]], …]]]`.
fn ids_and_numbers(answer: Value, ids: &mut Vec<Vec<u8>>, numbers: &mut Vec<u64>) -> Option<()> {
    let Value::Array(mut streams) = answer else { return None };
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

impl Subscriber for Subscribing {
    async fn delivered(&mut self, numbers: &mut Vec<u64>) -> Result<()> {
        while self.ids.is_empty() {
            let answer = self.read().await;
            self.reading = None;
            match answer? {
                Value::Nil => {} // nothing came within the time of BLOCK
                answer => ids_and_numbers(answer, &mut self.ids, numbers)
                    .ok_or("not an answer to XREADGROUP")?,
            }
        }
        Ok(())
    }

    /// Waits for the answers as well, and meanwhile reads on.
    async fn acknowledge(&mut self) -> Result<()> {
        for id in std::mem::take(&mut self.ids) {
            let mut acknowledge = redis::cmd("XACK");
            acknowledge.arg(TOPIC).arg(GROUP).arg(id);
            self.acknowledgements.push(acknowledge);
        }
        self.acknowledgements.send();
        let _ = self.read().now_or_never();
        self.settled().await
    }

    async fn settled(&mut self) -> Result<()> {
        while !self.acknowledgements.sent.is_empty() {
            self.acknowledgements.answered().await?;
        }
        Ok(())
    }
}
