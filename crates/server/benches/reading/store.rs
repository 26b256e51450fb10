//! Creates a store with many events.

use std::path::Path;

use bytes::Bytes;
use prombus_engine::{Batch, DiskEngine, DiskOptions, Durability, Engine};
use prombus_proto::{Event, EventId, Headers, Payload, Timestamp, Topic};

use crate::Failure;

pub(crate) const EVENTS_PER_MS: u64 = 10;
/// The time of the first event.
pub(crate) const FIRST_TS: u64 = 1_700_000_000_000;
const BATCH_EVENTS: u64 = 10_000;

/// Creates topics with the given number of events.
pub(crate) async fn fill(folder: &Path, topics: &[(&str, u64)]) -> Result<(), Failure> {
    let engine = DiskEngine::open(&DiskOptions::at(folder))?;
    for (name, count) in topics {
        let topic = Topic::new(name)?;
        let mut number = 0;
        while number < *count {
            let end = (number + BATCH_EVENTS).min(*count);
            let events: Result<_, Failure> =
                (number..end).map(|n| Ok(event(&topic, n)?.encode())).collect();
            let batch = Batch {
                events: events?,
                expected_last: vec![],
                deleted_topics: vec![],
                state: vec![],
                durability: Durability::Buffered,
            };
            engine.commit(batch).await?;
            number = end;
        }
    }
    Ok(engine.close().await?)
}

/// About 236 bytes of JSON.
fn event(topic: &Topic, number: u64) -> Result<Event, Failure> {
    let payload = format!(
        r#"{{"pid":{},"name":"worker-{}","status":"running","cpu":0.25,"memory":104857600,"host":"node-{:03}.example"}}"#,
        number % 32768,
        number % 64,
        number % 999
    );
    Ok(Event {
        id: EventId::from_uuid(uuid::Uuid::from_u64_pair(0x0190_f5e4_8d4b_7000, 1 << 63 | number)),
        ts: Timestamp(FIRST_TS + number / EVENTS_PER_MS),
        topic: topic.clone(),
        key: None,
        headers: Headers::NONE,
        payload: Payload::parse(Bytes::from(payload))?,
        caused_by: vec![],
        tags: vec![],
        sid: None,
    })
}
