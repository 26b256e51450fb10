//! Replay and export at events that the server cannot read back.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt};
use prombus_client::{DamagedRange, Error, Event, Outgoing};
use prombus_engine::delegating::DelegatingEngine;
use prombus_engine::{CommitError, Damaged, Engine, MemoryEngine, Page, ReadBudget, ReadError};
use prombus_proto::{Seq, SystemClock, Topic};

use crate::harness::{TestServer, start_with_engine};

const RANGE: DamagedRange = DamagedRange { first_seq: 4, last_seq: 6 };

/// Cannot read the events of [`RANGE`].
struct DamagedEngine(MemoryEngine);

#[async_trait]
impl DelegatingEngine for DamagedEngine {
    fn inner(&self) -> &dyn Engine {
        &self.0
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        let (first, last) = (Seq(RANGE.first_seq), Seq(RANGE.last_seq));
        if (first..=last).contains(&from) {
            let (topic, detail) = (topic.clone(), "a flipped bit".to_owned());
            return Err(Damaged::Events { topic, first, last, detail }.into());
        }
        let mut page = self.0.read(topic, from, budget).await?;
        page.events.retain(|event| from > last || event.seq < first);
        Ok(page)
    }

    async fn close(&self) -> Result<(), CommitError> {
        self.0.close().await
    }
}

/// Starts a server with the numbers 1 to 10 in the topic `t`.
async fn damaged() -> TestServer {
    let engine = DamagedEngine(MemoryEngine::new(Arc::new(SystemClock)));
    let server = start_with_engine(Arc::new(engine), &[]).await;
    let events = (1..=10_u64).map(|number| Outgoing::new(&number).unwrap());
    server.connect().await.publish_batch("t", events).await.unwrap();
    server
}

fn payloads(events: Vec<Event<u64>>) -> Vec<u64> {
    events.into_iter().map(|event| event.payload).collect()
}

#[tokio::test]
async fn a_read_ends_with_an_error_at_the_damage() {
    let server = damaged().await;
    let client = server.connect().await;
    let replay = client.replay("t").stream::<u64>().unwrap();
    let export = client.export("t").stream::<u64>().unwrap();
    for mut events in [replay, export] {
        for number in 1..=3 {
            assert_eq!(events.next().await.unwrap().unwrap().payload, number);
        }
        assert_eq!(events.next().await.unwrap().unwrap_err(), Error::Damaged(RANGE));
        assert!(StreamExt::next(&mut events).await.is_none());
    }
    // The damage is not reached.
    let some = client.replay("t").limit(3).stream().unwrap().try_collect().await.unwrap();
    assert_eq!(payloads(some), [1, 2, 3]);
}

#[tokio::test]
async fn a_read_with_a_handler_continues_behind_the_damage() {
    let server = damaged().await;
    let client = server.connect().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = || {
        let seen = Arc::clone(&seen);
        move |range| seen.lock().unwrap().push(range)
    };
    let replay = client.replay("t").on_damaged(handler()).stream().unwrap();
    let export = client.export("t").on_damaged(handler()).stream().unwrap();
    for events in [replay, export] {
        assert_eq!(payloads(events.try_collect().await.unwrap()), [1, 2, 3, 7, 8, 9, 10]);
    }
    assert_eq!(*seen.lock().unwrap(), [RANGE, RANGE]);
}
