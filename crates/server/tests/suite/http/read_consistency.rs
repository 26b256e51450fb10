//! Replay, export, stream and a consumer group return the same events, byte for byte, in the same
//! order.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::gateway::client::Received;
use crate::gateway::running::{Running, started_over};
use crate::http::client::HttpClient;
use crate::http::stream::Listener;
use crate::store::Store;

const PUBLISHERS: usize = 4;
const EVENTS_PER_PUBLISHER: usize = 500;
const ALL: usize = PUBLISHERS * EVENTS_PER_PUBLISHER;

async fn publish(running: &Running, publisher: usize) {
    let mut socket = running.connect().await;
    let mut client = HttpClient::connect(running).await;
    for number in 0..EVENTS_PER_PUBLISHER / 10 {
        let payload = json!({"publisher": publisher, "number": number, "text": "ü\u{1F600}"});
        for _ in 0..5 {
            socket.publish("t", payload.clone()).await;
        }
        for _ in 0..2 {
            client.post("/publish/t?key=k", payload.to_string()).await.ok();
        }
        let line = json!({"payload": payload, "headers": {"a": "b"}, "ts": 5}).to_string();
        client.ndjson("/publish/t", format!("{line}\n{line}\n{line}\n")).await.ok();
    }
}

async fn listen(running: &Running) -> Vec<String> {
    let mut listener = Listener::open(running, "/stream?topic=t&from=earliest", &[]).await;
    let mut events = Vec::new();
    while events.len() < ALL + 1 {
        events.push(listener.event().await);
    }
    events
}

async fn consume(running: &Running) -> Vec<String> {
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"from": "earliest"})).await;
    let mut events = Vec::new();
    while events.len() < ALL + 1 {
        // Compares the raw bytes: parsing would hide a difference.
        let Received::Text(frame) = client.receive().await else { panic!("closed") };
        if !frame.starts_with(r#"{"op":"EVENT""#) {
            continue;
        }
        let members: std::collections::HashMap<&str, &RawValue> =
            serde_json::from_str(&frame).unwrap();
        let event = members["event"].get();
        events.push(event.to_owned());
        let id = serde_json::from_str::<Value>(event).unwrap()["id"].clone();
        client.send(&json!({"op": "ACK", "topic": "t", "group": "g", "id": id})).await;
    }
    events
}

async fn replay(running: &Running) -> Vec<String> {
    let mut client = HttpClient::connect(running).await;
    let mut events = Vec::new();
    let mut query = "topic=t&limit=300".to_owned();
    // Events are published meanwhile: at the end of the topic, ask again.
    while events.len() < ALL + 1 {
        let reply = client.get(&format!("/replay?{query}")).await;
        let page: std::collections::HashMap<&str, &RawValue> =
            serde_json::from_slice(&reply.body).unwrap();
        let page_events: Vec<&RawValue> = serde_json::from_str(page["events"].get()).unwrap();
        events.extend(page_events.iter().map(|event| event.get().to_owned()));
        let last: Value = serde_json::from_str(events.last().unwrap()).unwrap();
        let id = last["id"].as_str().unwrap();
        query = match reply.ok()["next"].as_str() {
            Some(next) => next.to_owned(),
            None => format!("topic=t&from=afterId&afterId={id}&limit=300"),
        };
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn all_ways_to_read_agree_under_concurrent_publishing() {
    let store = Store::new();
    let running = started_over(store.open().await, &[]).await;
    let mut client = HttpClient::connect(&running).await;
    client.post("/publish/t", "\"first\"").await.ok();
    let publishing = futures_util::future::join_all((0..PUBLISHERS).map(|n| publish(&running, n)));
    let (_, streamed, consumed, replayed) =
        tokio::join!(publishing, listen(&running), consume(&running), replay(&running));
    let export = client.get("/export?topic=t").await;
    let exported: Vec<String> =
        std::str::from_utf8(&export.body).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(exported.len(), ALL + 1);
    assert!(exported == streamed && exported == consumed && exported == replayed);
    let seqs = exported
        .iter()
        .map(|event| serde_json::from_str::<Value>(event).unwrap()["seq"].as_u64().unwrap());
    assert!(seqs.eq(1..=ALL as u64 + 1));
}
