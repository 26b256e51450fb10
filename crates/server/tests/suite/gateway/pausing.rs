//! PAUSE and RESUME.

use std::time::Duration;

use serde_json::json;

use crate::gateway::client::payload;
use crate::gateway::running::started;

#[tokio::test]
async fn a_paused_subscription_gets_nothing_until_it_is_resumed() {
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
    // Both may be repeated.
    for frame in [&pause, &pause, &resume, &resume] {
        client.ok(frame.clone()).await;
    }
    client.ack(&event).await;
}

#[tokio::test]
async fn after_the_ok_of_pause_no_event_comes_though_many_wait() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let mut publisher = running.connect().await;
    for _ in 0..5 {
        let events: Vec<_> = (0..1000).map(|n| json!({"payload": n})).collect();
        publisher.ok(json!({"op": "PUBLISH", "topic": "t", "events": events})).await;
    }
    client.subscribe("t", "g", json!({"from": "earliest", "maxInFlight": 10_000})).await;
    client.event().await;
    // What comes before its OK was on its way already.
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
        assert_eq!(event["event"]["seq"], known, "none is missing, none comes twice");
        assert_eq!(event["ctx"]["attempt"], 1, "what had not left does not count");
    }
}

#[tokio::test]
async fn leases_that_are_out_keep_their_deadlines() {
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
