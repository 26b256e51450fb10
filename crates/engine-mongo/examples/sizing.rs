//! Measures what an event takes on the disk of one member, including indexes, on a temporary
//! server. The numbers in `docs/operations-mongodb.md` come from here.
//!
//!     cargo run -p prombus-engine-mongo --example sizing

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a short development tool")]

use std::error::Error;

use bytes::Bytes;
use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Database};
use prombus_engine::{Batch, Durability, Engine};
use prombus_engine_mongo::{MongoEngine, MongoOptions};
use prombus_proto::{
    Clock, EncodedEvent, Event, Headers, IdSource, Key, Payload, SystemClock, Topic,
};
use prombus_test_mongod::{Kind, Mongod};

const EVENTS: usize = 200_000;
const AT_ONCE: usize = 1000;
const PAYLOAD_BYTES: usize = 200;
const KEYS: usize = 5000;
const YEAR_MS: i64 = 365 * 86_400_000;

fn main() -> Result<(), Box<dyn Error>> {
    let server = Mongod::start_on_thread(Kind::ReplicaSet);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for ttl in [None, Some(YEAR_MS)] {
        runtime.block_on(measure(&server.url(), ttl))?;
    }
    Ok(())
}

async fn measure(url: &str, ttl: Option<i64>) -> Result<(), Box<dyn Error>> {
    let name = if ttl.is_some() { "with_ttl" } else { "without_ttl" };
    let mut options = MongoOptions::at(url, prombus_bus::STATE_KINDS);
    options.database = Some(name.to_owned());
    let engine = MongoEngine::open(&options).await?;
    let client = Client::with_uri_str(url).await?;
    let database = client.database(name);
    if let Some(ttl) = ttl {
        let topic = doc! { "_id": "orders.created", "ttlMs": ttl };
        database.collection::<Document>("topics").insert_one(topic).await?;
    }
    let ids = IdSource::system();
    let mut json_bytes = 0;
    for numbers in (0..EVENTS).collect::<Vec<_>>().chunks(AT_ONCE) {
        let events: Vec<EncodedEvent> = numbers.iter().map(|n| event(&ids, *n).encode()).collect();
        json_bytes += events.iter().map(EncodedEvent::max_json_bytes).sum::<usize>();
        engine.commit(Batch::of_events(events, Durability::Buffered)).await?;
    }
    engine.close().await?;
    // Data that is only in memory has no size on disk yet.
    client.database("admin").run_command(doc! { "fsync": 1 }).await?;
    println!("{name}: {EVENTS} events of about {} bytes of JSON", json_bytes / EVENTS);
    print(&database).await
}

fn event(ids: &IdSource, n: usize) -> Event {
    // Text that compresses about as well as real payloads.
    let noise: String = (0..PAYLOAD_BYTES / 16)
        .map(|part| format!("{:08x} article ", (n * 31 + part) * 0x9E37_79B9 % 0xFFFF_FFFF))
        .collect();
    Event {
        id: ids.next_id(),
        ts: SystemClock.now(),
        topic: Topic::new("orders.created").unwrap(),
        key: Some(Key::new(&format!("customer-{}", n % KEYS)).unwrap()),
        headers: Headers::default(),
        payload: Payload::parse(Bytes::from(format!("{{\"text\": \"{noise}\"}}"))).unwrap(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    }
}

async fn print(database: &Database) -> Result<(), Box<dyn Error>> {
    let stats = database.run_command(doc! { "collStats": "events" }).await?;
    let each = |bytes: Option<&Bson>| match bytes {
        Some(Bson::Int32(bytes)) => f64::from(*bytes) / EVENTS as f64,
        Some(Bson::Int64(bytes)) => *bytes as f64 / EVENTS as f64,
        Some(Bson::Double(bytes)) => bytes / EVENTS as f64,
        _ => f64::NAN,
    };
    println!("  document, uncompressed      {:6.0} bytes per event", each(stats.get("size")));
    println!("  document, compressed        {:6.0}", each(stats.get("storageSize")));
    for (index, bytes) in stats.get_document("indexSizes")? {
        println!("  index {index:<21} {:6.0}", each(Some(bytes)));
    }
    println!("  total                       {:6.0}", each(stats.get("totalSize")));
    Ok(())
}
