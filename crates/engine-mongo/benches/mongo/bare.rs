//! The bare driver: the same fields and indexes, without order, checks and topics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, CollectionOptions, WriteConcern};
use prombus_engine::{Durability, Engine};
use prombus_proto::{EncodedEvent, Seq, Timestamp};
use tokio::task::JoinSet;

use crate::load::{EACH, Load, new_engine, new_ids};

/// Returns events per second.
pub(crate) async fn rate(url: &str, load: Load) -> f64 {
    // Creates the same indexes.
    let (engine, database) = new_engine(url).await;
    let mut options = ClientOptions::parse(url).await.unwrap();
    // As the engine does.
    options.max_pool_size = Some(100);
    let client = mongodb::Client::with_options(options).unwrap();
    let mut concern = WriteConcern::nodes(1);
    if load.durability == Durability::Fsync {
        concern = WriteConcern::majority();
        concern.journal = Some(true);
    }
    let how = CollectionOptions::builder().write_concern(concern).build();
    let collection = client.database(&database).collection_with_options::<Document>("events", how);
    // Positions are unique across writers.
    let next = Arc::new(AtomicU64::new(1));
    let began = Instant::now();
    let mut running = JoinSet::new();
    for writer in 0..load.writers {
        let (collection, next) = (collection.clone(), next.clone());
        running.spawn(async move {
            let (ids, topic) = (new_ids(), load.topic_of(writer));
            let mut count = 0;
            while began.elapsed() < EACH {
                let first = next.fetch_add(load.events as u64, Ordering::Relaxed);
                let events = load.new_events().into_iter().map(|event| {
                    event.complete(topic.clone(), || ids.next_id(), Timestamp(0)).encode()
                });
                let documents = events.zip(first..).map(|(event, seq)| document_of(&event, seq));
                collection.insert_many(documents).await.unwrap();
                count += load.events;
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
