//! Events of 236 bytes of stored JSON.

use std::sync::Arc;

use bytes::Bytes;
use prombus_engine::{Batch, Durability, Engine};
use prombus_proto::{
    EncodedEvent, Event, Headers, IdSource, Payload, Seq, SystemClock, Timestamp, Topic,
};

pub(crate) const EVENT_BYTES: usize = 236;
pub(crate) const BATCH: usize = 100;

pub(crate) fn topic(number: usize) -> Topic {
    Topic::new(&format!("bench.topic-{number:05}")).unwrap()
}

/// Creates an event whose JSON has [`EVENT_BYTES`] bytes at a position of seven digits.
pub(crate) fn event(ids: &IdSource, topic: &Topic) -> EncodedEvent {
    let with = |filler: usize| {
        Event {
            id: ids.next_id(),
            ts: Timestamp(1_700_000_000_000),
            topic: topic.clone(),
            key: None,
            headers: Headers::default(),
            payload: Payload::parse(Bytes::from(format!("{{\"t\":\"{}\"}}", "x".repeat(filler))))
                .unwrap(),
            caused_by: vec![],
            tags: vec![],
            sid: None,
        }
        .encode()
    };
    const FILLER: usize = 92;
    let encoded = with(FILLER);
    debug_assert_eq!(json_bytes(&encoded), EVENT_BYTES);
    encoded
}

pub(crate) fn json_bytes(event: &EncodedEvent) -> usize {
    let mut json = Vec::new();
    event.write_json(Seq(1_000_000), &mut json);
    json.len()
}

pub(crate) fn batches(topic: &Topic, events: usize, ids: &IdSource) -> Vec<Vec<EncodedEvent>> {
    (0..events / BATCH).map(|_| (0..BATCH).map(|_| event(ids, topic)).collect()).collect()
}

pub(crate) fn ids() -> IdSource {
    IdSource::new(Arc::new(SystemClock), Arc::new(prombus_proto::SystemRandom))
}

/// Commits all batches, at most `window` at a time, and waits for all of them.
pub(crate) async fn commit_all(
    engine: &Arc<dyn Engine>,
    batches: Vec<Vec<EncodedEvent>>,
    window: usize,
    durability: Durability,
) {
    let waiting = Arc::new(std::sync::Mutex::new(batches.into_iter()));
    let writers: Vec<_> = (0..window)
        .map(|_| {
            let (engine, waiting) = (Arc::clone(engine), Arc::clone(&waiting));
            tokio::spawn(async move {
                loop {
                    let next = waiting.lock().unwrap().next();
                    let Some(events) = next else { break };
                    engine.commit(Batch::of_events(events, durability)).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}
