//! Events that nest deeper than a JSON reader goes. Older servers accepted them.

use std::sync::Arc;

use prombus_client::{Received, Start};
use prombus_engine::{Batch, Durability, Engine, MemoryEngine};
use prombus_proto::{Event, EventId, Headers, Payload, SystemClock, Timestamp, Topic};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::harness::{Ledger, TestServer, client_builder, start_with_engine};
use crate::proxy::Proxy;

/// The depth that older servers accepted.
const DEPTH: usize = 127;
const INNOCENT: u64 = 80;

fn nested() -> String {
    format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH))
}

/// Returns a server whose topic `t` has one deep event in front of many others.
async fn server_with_a_deep_event() -> TestServer {
    let engine = Arc::new(MemoryEngine::new(Arc::new(SystemClock)));
    let event = |number: u64| Event {
        id: EventId::new(&format!("e{number}")).unwrap(),
        ts: Timestamp(1),
        topic: Topic::new("t").unwrap(),
        key: None,
        headers: Headers::NONE,
        payload: match number {
            0 => Payload::parse(nested().into()).unwrap(),
            _ => Payload::of(&number).unwrap(),
        },
        caused_by: vec![],
        tags: vec![],
        sid: None,
    };
    let batch = Batch {
        events: (0..=INNOCENT).map(|number| event(number).encode()).collect(),
        expected_last: vec![],
        deleted_topics: vec![],
        state: vec![],
        durability: Durability::Buffered,
    };
    engine.commit(batch).await.unwrap();
    start_with_engine(engine, &[]).await
}

#[tokio::test]
async fn an_event_that_cannot_be_decoded_is_nacked_alone() {
    let server = server_with_a_deep_event().await;
    let proxy = Proxy::to(server.ws()).await;
    let client = client_builder(&proxy.ws()).connect().await.unwrap();
    let (handled, letters) = (Ledger::new(), Ledger::new());
    let on_letter = letters.clone();
    client
        .subscribe("dlq.t", "people")
        .from(Start::Earliest)
        .handle(move |event: Received<Box<RawValue>>| {
            on_letter.write(event.payload.get().to_owned());
            async { Ok(()) }
        })
        .await
        .unwrap();
    let on_event = handled.clone();
    client
        .subscribe("t", "g")
        .from(Start::Earliest)
        .max_attempts(1)
        .handle(move |event: Received<Value>| {
            on_event.write(event.payload.as_u64().unwrap());
            async { Ok(()) }
        })
        .await
        .unwrap();
    let mut numbers = handled.wait_for_len(usize::try_from(INNOCENT).unwrap()).await;
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=INNOCENT).collect::<Vec<_>>());
    let letters = letters.wait_for_len(1).await;
    let reason = "cannot decode the event: recursion limit exceeded";
    assert!(letters[0].contains(reason) && letters[0].contains(&nested()), "{letters:?}");
    server.until_lag("t", 0).await;
    assert_eq!(proxy.connections(), 1, "the connection was never lost");
    client.close().await;
    let letters = server.payloads_as_text("dlq.t").await;
    assert_eq!(letters.len(), 1, "no innocent event is a dead letter");
}

#[tokio::test]
async fn its_bytes_can_be_read() {
    let server = server_with_a_deep_event().await;
    let client = server.connect().await;
    let handled = Ledger::new();
    let on_event = handled.clone();
    client
        .subscribe("t", "g")
        .from(Start::Earliest)
        .handle(move |event: Received<Box<RawValue>>| {
            on_event.write(event.payload.get().to_owned());
            async { Ok(()) }
        })
        .await
        .unwrap();
    assert!(handled.wait_for_len(81).await.contains(&nested()));
    let mut replayed = client.replay("t").stream::<Box<RawValue>>().unwrap();
    assert_eq!(replayed.next().await.unwrap().unwrap().payload.get(), nested());
    assert_eq!(server.payloads_as_text("t").await[0], nested());
    client.close().await;
}
