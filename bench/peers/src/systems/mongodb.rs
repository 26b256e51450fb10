//! MongoDB as an event log, as in the design that Prombus started from: one document and one insert per event, that
//! design's indexes, and a group cursor that is updated for each event.
//!
//! The design leaves open how a consumer learns of events. Here it polls again a millisecond after it found none.
//! Concurrent inserts complete in any order, so the consumer stops at a gap.

use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, IndexOptions, ServerAddress, WriteConcern};
use mongodb::{Client, Collection, Database, IndexModel};

use super::{GROUP, TOPIC};
use crate::client::{Publisher, Result, Subscriber};
use crate::event;

/// Connections of the client. Each carries one insert at a time.
pub(crate) const CONNECTIONS: u32 = 100;
/// The timestamp of the first event.
const FIRST_TS: i64 = 1_700_000_000_000;

type Pending = Pin<Box<dyn Future<Output = mongodb::error::Result<u64>>>>;

fn database(address: SocketAddr, journaled: bool) -> Result<Database> {
    let host = ServerAddress::Tcp { host: address.ip().to_string(), port: Some(address.port()) };
    let mut concern = WriteConcern::nodes(1);
    if journaled {
        concern.journal = Some(true);
    }
    let options = ClientOptions::builder()
        .hosts(vec![host])
        .direct_connection(true)
        .max_pool_size(CONNECTIONS)
        .write_concern(concern)
        .build();
    Ok(Client::with_options(options)?.database("bench"))
}

/// Creates the indexes.
pub(crate) async fn prepare(address: SocketAddr) -> Result<()> {
    let unique = IndexOptions::builder().unique(true).build();
    database(address, false)?
        .collection::<Document>("events")
        .create_indexes([
            IndexModel::builder().keys(doc! { "topic": 1, "ts": 1, "id": 1 }).build(),
            IndexModel::builder().keys(doc! { "topic": 1, "key": 1, "ts": 1 }).build(),
            IndexModel::builder().keys(doc! { "id": 1 }).options(unique).build(),
        ])
        .await?;
    Ok(())
}

fn document(number: u64) -> Result<Document> {
    let digits = event::digits(number);
    Ok(doc! {
        "id": format!("00000000-0000-7000-8000-00{digits}"),
        "ts": FIRST_TS + i64::try_from(number)?,
        "topic": TOPIC,
        "payload": { "n": digits, "t": event::FILLER },
    })
}

pub(crate) struct MongoPublisher {
    events: Collection<Document>,
    inserts: FuturesUnordered<Pending>,
}

impl MongoPublisher {
    pub(crate) fn connect(address: SocketAddr, journaled: bool) -> Result<Self> {
        let events = database(address, journaled)?.collection("events");
        Ok(Self { events, inserts: FuturesUnordered::new() })
    }
}

impl Publisher for MongoPublisher {
    async fn publish(&mut self, numbers: Range<u64>) -> Result<()> {
        let count = numbers.end - numbers.start;
        let documents = numbers.map(document).collect::<Result<Vec<_>>>()?;
        let events = self.events.clone();
        self.inserts.push(Box::pin(async move {
            match <[Document; 1]>::try_from(documents) {
                Ok([one]) => events.insert_one(one).await.map(|_| ()),
                Err(many) => events.insert_many(many).await.map(|_| ()),
            }?;
            Ok(count)
        }));
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    async fn confirmed(&mut self) -> Result<u64> {
        let mut events = self.inserts.next().await.ok_or("no insert is in flight")??;
        while let Some(Some(count)) = self.inserts.next().now_or_never() {
            events += count?;
        }
        Ok(events)
    }
}

/// Consumes by polling for events after the cursor.
pub(crate) struct MongoSubscriber {
    events: Collection<Document>,
    cursors: Collection<Document>,
    window: i64,
    next: u64,
    /// The ids of unacknowledged events, with their timestamps.
    delivered: Vec<(String, i64)>,
}

impl MongoSubscriber {
    pub(crate) fn connect(address: SocketAddr, journaled: bool, window: u64) -> Result<Self> {
        let database = database(address, journaled)?;
        Ok(Self {
            events: database.collection("events"),
            cursors: database.collection("cursors"),
            window: i64::try_from(window)?,
            next: 0,
            delivered: Vec::new(),
        })
    }
}

impl Subscriber for MongoSubscriber {
    async fn receive(&mut self, numbers: &mut Vec<u64>) -> Result<()> {
        loop {
            let from = FIRST_TS + i64::try_from(self.next)?;
            let after: Vec<Document> = self
                .events
                .find(doc! { "topic": TOPIC, "ts": { "$gte": from } })
                .sort(doc! { "topic": 1, "ts": 1, "id": 1 })
                .limit(self.window)
                .batch_size(u32::try_from(self.window)?)
                .await?
                .try_collect()
                .await?;
            for event in &after {
                let number: u64 = event.get_document("payload")?.get_str("n")?.parse()?;
                if number != self.next {
                    break;
                }
                numbers.push(number);
                self.delivered.push((event.get_str("id")?.to_owned(), event.get_i64("ts")?));
                self.next += 1;
            }
            if !self.delivered.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// One update after the other: a cursor must not move backwards.
    async fn acknowledge(&mut self) -> Result<()> {
        for (id, ts) in std::mem::take(&mut self.delivered) {
            let cursor = doc! { "_id": format!("{TOPIC}::{GROUP}") };
            let set = doc! { "$set": { "lastId": id, "lastTs": ts } };
            self.cursors.update_one(cursor, set).upsert(true).await?;
        }
        Ok(())
    }

    async fn wait_for_acks(&mut self) -> Result<()> {
        Ok(())
    }
}
