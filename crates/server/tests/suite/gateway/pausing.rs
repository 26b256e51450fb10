//! PAUSE and RESUME.

use std::time::Duration;

use serde_json::json;

use crate::gateway::client::payload;
use crate::gateway::running::started;

#[tokio::test]
async fn a_paused_subscription_gets_no_events_until_it_is_resumed() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let mut publisher = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let pause = json!({"op": "PAUSE", "corr": "p", "topic": "t", "group": "g"});
    let resume = json!({"op": "RESUME", "corr": "r", "topic": "t", "group": "g"});
    assert_eq!(client.ask(pause.clone()).await, r#"{"op":"OK","corr":"p"}"#);
    publisher.publish("t", json!(1)).await;
    client.gets_nothing_for(Duration::from_millis(100)).await;
    assert_eq!(client.ask(resume.clone()).await, r#"{"op":"OK","corr":"r"}"#);
    let event = client.event().await;
    assert_eq!((payload(&event), &event["ctx"]["attempt"]), (&json!(1), &json!(1)));
    // Both are idempotent.
    for frame in [&pause, &pause, &resume, &resume] {
        client.ok(frame.clone()).await;
    }
    client.ack(&event).await;
}

#[tokio::test]
async fn no_event_follows_the_ok_of_pause() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let mut publisher = running.connect().await;
    for _ in 0..5 {
        let events: Vec<_> = (0..1000).map(|n| json!({"payload": n})).collect();
        publisher.ok(json!({"op": "PUBLISH", "topic": "t", "events": events})).await;
    }
    client.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 10_000})).await;
    client.event().await;
    // Events that arrive before its OK were already on their way.
    client.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"})).await;
    let mut known = 1;
    while client.event_within(Duration::ZERO).await.is_some() {
        known += 1;
    }
    client.gets_nothing_for(Duration::from_millis(300)).await;
    client.ok(json!({"op": "RESUME", "topic": "t", "group": "g"})).await;
    while known < 5000 {
        let event = client.event().await;
        known += 1;
        assert_eq!(event["event"]["seq"], known, "each event arrives once");
        assert_eq!(event["ctx"]["attempt"], 1, "an unsent delivery is not an attempt");
    }
}

#[tokio::test]
async fn pausing_does_not_extend_leases() {
    let running = started(&[]).await;
    let mut paused = running.connect().await;
    let mut other = running.connect().await;
    paused.subscribe("t", "g", json!({"ackTimeoutMs": 300})).await;
    other.publish("t", json!(1)).await;
    paused.event().await;
    paused.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"})).await;
    other.subscribe("t", "g", json!({})).await;
    let event = other.event().await;
    assert_eq!(event["ctx"]["attempt"], 2);
    other.ack(&event).await;
}
