//! Commits beside what the bare driver does with the same documents, on one server in one run.
//!
//! `cargo bench -p prombus-engine-mongo --bench mongo`. Starts a server of its own, a replica set of
//! one member, in a temporary folder.

#![allow(clippy::unwrap_used, reason = "a benchmark that fails says where")]
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mongodb::bson::{Document, doc};
use mongodb::options::{CollectionOptions, WriteConcern};
use prombus_engine::{Batch, Durability, Engine};
use prombus_engine_mongo::{MongoEngine, MongoOptions};
use prombus_proto::{
    EncodedEvent, Event, Headers, IdSource, Payload, Seq, SystemChance, SystemClock, Timestamp,
    Topic,
};
use prombus_test_mongod::{Kind, end_shared, new_database, shared};

const EACH: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 3;

fn main() {
    let url = shared(Kind::ReplicaSet).url();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        println!("{:<34}{:>12}{:>12}{:>8}", "", "insert_many", "commit", "ratio");
        for durability in [Durability::Buffered, Durability::Fsync] {
            for (writers, events) in [(1, 1), (1, 100), (16, 100), (1, 1000)] {
                // In turns, so that both meet the same machine.
                let (mut bare, mut ours) = (0.0, 0.0);
                for _ in 0..ROUNDS {
                    bare += bare_rate(&url, durability, writers, events).await / f64::from(ROUNDS);
                    ours +=
                        engine_rate(&url, durability, writers, events).await / f64::from(ROUNDS);
                }
                let name = format!("{durability:?}, {writers} x {events} events");
                println!("{name:<34}{bare:>10.0}/s{ours:>10.0}/s{:>8.2}", ours / bare);
            }
        }
    });
    end_shared();
}

fn events(ids: &IdSource, topic: &Topic, count: usize) -> Vec<EncodedEvent> {
    let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(100));
    let payload = Payload::parse(&Bytes::from(payload)).unwrap();
    let event = || Event {
        id: ids.next_id(),
        ts: Timestamp(1_700_000_000_000),
        topic: topic.clone(),
        key: None,
        headers: Headers::default(),
        payload: payload.clone(),
        caused_by: vec![],
        tags: vec![],
        sid: None,
    };
    (0..count).map(|_| event().encode()).collect()
}

fn new_ids() -> IdSource {
    IdSource::new(Arc::new(SystemClock), Arc::new(SystemChance))
}

/// Events a second by the engine, each writer on a topic of its own.
async fn engine_rate(url: &str, durability: Durability, writers: usize, batch: usize) -> f64 {
    let mut options = MongoOptions::at(url);
    options.database = Some(new_database());
    let engine = Arc::new(MongoEngine::open(&options).await.unwrap());
    let began = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let engine = engine.clone();
        running.spawn(async move {
            let (ids, topic) = (new_ids(), Topic::new(&format!("t{writer}")).unwrap());
            let mut count = 0;
            while began.elapsed() < EACH {
                let batch_of = Batch::of_events(events(&ids, &topic, batch), durability);
                engine.commit(batch_of).await.unwrap();
                count += batch;
            }
            count
        });
    }
    let count: usize = running.join_all().await.into_iter().sum();
    let rate = count as f64 / began.elapsed().as_secs_f64();
    engine.close().await.unwrap();
    rate
}

/// Events a second by the bare driver: the same members and indexes, no order, no check.
async fn bare_rate(url: &str, durability: Durability, writers: usize, batch: usize) -> f64 {
    let mut options = MongoOptions::at(url);
    options.database = Some(new_database());
    // Makes the same indexes.
    let engine = MongoEngine::open(&options).await.unwrap();
    let client = mongodb::Client::with_uri_str(url).await.unwrap();
    let mut concern = WriteConcern::nodes(1);
    if durability == Durability::Fsync {
        concern = WriteConcern::majority();
        concern.journal = Some(true);
    }
    let how = CollectionOptions::builder().write_concern(concern).build();
    let database = client.database(options.database.as_deref().unwrap());
    let collection = database.collection_with_options::<Document>("events", how);
    let began = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let collection = collection.clone();
        running.spawn(async move {
            let (ids, topic) = (new_ids(), Topic::new(&format!("t{writer}")).unwrap());
            let mut count = 0;
            while began.elapsed() < EACH {
                let documents = events(&ids, &topic, batch).into_iter().zip(count as u64 + 1..);
                let documents = documents.map(|(event, seq)| document_of(&event, seq));
                collection.insert_many(documents).await.unwrap();
                count += batch;
            }
            count
        });
    }
    let count: usize = running.join_all().await.into_iter().sum();
    let rate = count as f64 / began.elapsed().as_secs_f64();
    engine.close().await.unwrap();
    rate
}

fn document_of(event: &EncodedEvent, seq: u64) -> Document {
    let mut json = Vec::new();
    event.write_json(Seq(seq), &mut json);
    doc! {
        "topic": event.topic().as_str(),
        "seq": i64::try_from(seq).unwrap(),
        "id": event.id().to_string(),
        "ts": i64::try_from(event.ts().0).unwrap(),
        "bytes": 0_i64,
        "latestTs": 0_i64,
        "json": String::from_utf8(json).unwrap(),
    }
}
