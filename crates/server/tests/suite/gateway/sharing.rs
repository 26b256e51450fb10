//! Several members of a group.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::client::{Client, frame_for, payload};
use crate::gateway::running::{Running, started, started_over};
use crate::store::Store;

async fn publish_many(publisher: &mut Client, count: usize) {
    let numbers: Vec<_> = (0..count).collect();
    for chunk in numbers.chunks(1000) {
        let events: Vec<_> = chunk.iter().map(|n| json!({"payload": n})).collect();
        publisher.ok(json!({"op": "PUBLISH", "topic": "t", "events": events})).await;
    }
}

async fn member(running: &Running, opts: Value) -> Client {
    let mut client = running.connect().await;
    client.subscribe("t", "g", opts).await;
    client
}

/// Acknowledges events until none arrives for a second, and returns their payloads.
async fn consume(mut client: Client) -> Vec<u64> {
    let mut got = Vec::new();
    while let Some(event) = client.event_within(Duration::from_secs(1)).await {
        assert_eq!(event["ctx"]["attempt"], 1);
        got.push(payload(&event).as_u64().unwrap());
        client.send(&frame_for("ACK", &event)).await;
        assert_eq!(client.answer().await, r#"{"op":"OK"}"#);
    }
    got
}

#[tokio::test]
async fn two_members_get_each_event_once() {
    let running = started(&[]).await;
    let one = tokio::spawn(consume(member(&running, json!({})).await));
    let two = tokio::spawn(consume(member(&running, json!({})).await));
    publish_many(&mut running.connect().await, 10_000).await;
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    println!("shared {} to {}", one.len(), two.len());
    assert!(one.len() > 1000 && two.len() > 1000, "{} to {}", one.len(), two.len());
    for own in [&one, &two] {
        assert!(own.is_sorted(), "each member gets its events in order");
    }
    let all: HashSet<_> = one.iter().chain(&two).copied().collect();
    assert_eq!((all.len(), one.len() + two.len()), (10_000, 10_000));
}

#[tokio::test]
async fn expired_leases_move_to_another_member() {
    let running = started(&[]).await;
    let mut stalled =
        member(&running, json!({"ackTimeoutMs": 400, "maxInFlight": 5, "maxAttempts": 9})).await;
    publish_many(&mut running.connect().await, 5).await;
    for _ in 0..5 {
        stalled.event().await;
    }
    stalled.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"})).await;
    let mut busy = member(&running, json!({})).await;
    for n in 0..5 {
        let event = busy.event().await;
        assert_eq!((payload(&event), &event["ctx"]["attempt"]), (&json!(n), &json!(2)));
        busy.ack(&event).await;
    }
}

#[tokio::test]
async fn a_closed_connection_releases_its_leases_and_the_attempt_counts() {
    let running = started(&[]).await;
    let mut leaving = member(&running, json!({"maxInFlight": 2})).await;
    publish_many(&mut running.connect().await, 3).await;
    for _ in 0..2 {
        leaving.event().await;
    }
    let mut staying = member(&running, json!({"maxInFlight": 9})).await;
    assert_eq!(payload(&staying.event().await), 2);
    // Its leases would last for another half minute.
    drop(leaving);
    for n in 0..2 {
        let event = staying.event_within(Duration::from_secs(10)).await.unwrap();
        assert_eq!((payload(&event), &event["ctx"]["attempt"]), (&json!(n), &json!(2)));
    }
}

#[tokio::test]
async fn every_group_gets_every_event() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    for group in ["a", "b"] {
        client.subscribe("t", group, json!({})).await;
    }
    publish_many(&mut running.connect().await, 100).await;
    let mut seen = HashSet::new();
    for _ in 0..200 {
        let event = client.event().await;
        assert!(seen.insert((event["group"].to_string(), event["event"]["seq"].as_u64())));
        client.ack(&event).await;
    }
}

/// A restarted server continues with the attempts and cursors of the previous one. A stop counts as no failure.
#[tokio::test]
async fn attempts_and_cursors_survive_restarts() {
    let store = Store::new();
    for attempt in 1..=6 {
        let running = started_over(store.open().await, &[]).await;
        let mut client = member(&running, json!({"from": "earliest", "maxAttempts": 3})).await;
        if attempt == 1 {
            publish_many(&mut running.connect().await, 2).await;
        }
        let first = client.event().await;
        assert_eq!((payload(&first), &first["ctx"]["attempt"]), (&json!(0), &json!(attempt)));
        if attempt == 1 {
            let second = client.event().await;
            client.ack(&second).await;
        }
        let stopped = tokio::spawn(running.server.stop());
        assert_eq!(client.close_code().await, 1001);
        drop(client);
        stopped.await.unwrap().unwrap();
    }
    let running = started_over(store.open().await, &[]).await;
    let mut letters = running.connect().await;
    letters.subscribe("dlq.t", "undertaker", json!({"from": "earliest"})).await;
    letters.gets_nothing_for(Duration::from_millis(100)).await;
    let mut client = member(&running, json!({})).await;
    let mut nack = frame_for("NACK", &client.event().await);
    nack["dead"] = json!(true);
    client.ok(nack).await;
    let letter = letters.event().await;
    assert_eq!(payload(&letter)["original"]["seq"], 1);
    assert_eq!(payload(&letter)["attempts"], 7);
}
