//! The engine alone: every writer commits and waits for the acknowledgement.

use std::time::Instant;

use prombus_engine::{Batch, Engine};
use prombus_proto::Timestamp;
use tokio::task::JoinSet;

use crate::load::{EACH, Load, new_engine, new_ids};

/// Returns events per second.
pub(crate) async fn rate(url: &str, load: Load) -> f64 {
    let (engine, _) = new_engine(url).await;
    let began = Instant::now();
    let mut running = JoinSet::new();
    for writer in 0..load.writers {
        let engine = engine.clone();
        running.spawn(async move {
            let (ids, topic) = (new_ids(), load.topic_of(writer));
            let mut count = 0;
            while began.elapsed() < EACH {
                let events = load.new_events().into_iter().map(|event| {
                    event.complete(topic.clone(), || ids.next_id(), Timestamp(0)).encode()
                });
                let batch = Batch::of_events(events.collect(), load.durability);
                engine.commit(batch).await.unwrap();
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
