//! Rate limits: publishes are refused, deliveries wait.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::client::parsed;
use crate::gateway::running::started;

fn publish(topic: &str) -> Value {
    json!({"op": "PUBLISH", "topic": topic, "payload": 1})
}

/// Checks the exact refusal, and that the frame succeeds after `retry_after_ms`.
async fn refuses_and_then_accepts(set: &[&str], frame: Value, message: &str) {
    let running = started(set).await;
    let mut client = running.connect().await;
    let mut answer = client.ask(frame.clone()).await;
    // Until all tokens are taken; the refill is slow.
    for _ in 0..10 {
        if answer.contains(r#""ERR""#) {
            break;
        }
        answer = client.ask(frame.clone()).await;
    }
    let wait = parsed(&answer)["retry_after_ms"].as_u64().unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(
        answer,
        format!(
            r#"{{"op":"ERR","code":"rate_limited","msg":"{message}","retry_after_ms":{wait}}}"#
        )
    );
    assert!((1..=2000).contains(&wait), "{wait}");
    tokio::time::sleep(Duration::from_millis(wait)).await;
    client.ok(frame).await;
}

const CONNECTION: [&str; 3] =
    ["limits.enabled=true", "limits.connection.capacity=4", "limits.connection.refill_per_sec=4"];

#[tokio::test]
async fn limits_a_connection() {
    refuses_and_then_accepts(&CONNECTION, publish("t"), "conn publish rate exceeded").await;
}

#[tokio::test]
async fn limits_a_topic_across_connections() {
    let set = ["limits.enabled=true", "limits.topic.capacity=2", "limits.topic.refill_per_sec=2"];
    refuses_and_then_accepts(&set, publish("t"), "topic publish rate exceeded").await;
    let own = [
        "limits.enabled=true",
        r#"topics."t".limit.capacity=2"#,
        r#"topics."t".limit.refill_per_sec=2"#,
    ];
    refuses_and_then_accepts(&own, publish("t"), "topic publish rate exceeded").await;
    let running = started(&own).await;
    let (mut one, mut two) = (running.connect().await, running.connect().await);
    one.ok(publish("t")).await;
    two.ok(publish("t")).await;
    assert_eq!(parsed(&one.ask(publish("t")).await)["code"], "rate_limited");
    one.ok(publish("u")).await;
}

/// The events of an ACK are admitted all or none. A refusal that kept some tokens would make its
/// `retry_after_ms` too short.
#[tokio::test]
async fn the_events_of_an_ack_are_admitted_all_or_none() {
    let running = started(&CONNECTION).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let mut publisher = running.connect().await;
    publisher.ok(publish("t")).await;
    let event = client.event().await;
    client.ok(publish("u")).await;
    // The delivery and the publish took a token each: little more than two are left.
    let mut ack = crate::gateway::client::frame_for("ACK", &event);
    ack["publish"] = json!(["a", "b", "a", "b"].map(|topic| json!({"topic": topic, "payload": 1})));
    let answer = parsed(&client.ask(ack.clone()).await);
    assert_eq!(answer["msg"], "conn publish rate exceeded", "{answer}");
    let wait = answer["retry_after_ms"].as_u64().unwrap();
    tokio::time::sleep(Duration::from_millis(wait)).await;
    client.ok(ack).await;
}

#[tokio::test]
async fn a_batch_above_the_capacity_has_no_retry_time() {
    let running = started(&[
        "limits.enabled=true",
        "limits.connection.capacity=900",
        "limits.connection.refill_per_sec=1",
    ])
    .await;
    let mut client = running.connect().await;
    let batch = |count: usize, payload: &str| {
        let events = vec![json!({"payload": payload}); count];
        json!({"op": "PUBLISH", "topic": "t", "events": events})
    };
    // About 420 kB.
    assert_eq!(
        client.ask(batch(1000, &"x".repeat(400))).await,
        r#"{"op":"ERR","code":"rate_limited","msg":"conn publish rate exceeded"}"#
    );
    // The refused frame took a token for every 4 KiB.
    assert_eq!(parsed(&client.ask(batch(840, "")).await)["code"], "rate_limited");
    client.ok(batch(750, "")).await;
}

#[tokio::test]
async fn deliveries_share_the_bucket_and_wait_for_tokens() {
    let set = [
        "limits.enabled=true",
        "limits.connection.capacity=10",
        "limits.connection.refill_per_sec=10",
    ];
    let running = started(&set).await;
    let mut consumer = running.connect().await;
    consumer.subscribe("t", "g", json!({})).await;
    for _ in 0..2 {
        let mut publisher = running.connect().await;
        for _ in 0..10 {
            publisher.ok(publish("t")).await;
        }
    }
    for _ in 0..10 {
        consumer.event().await;
    }
    // Its deliveries took the tokens for its publishes.
    let refused = parsed(&consumer.ask(publish("u")).await);
    assert_eq!(refused["msg"], "conn publish rate exceeded", "{refused}");
    // The rest arrives without any action.
    for seq in 11..=20 {
        let event = consumer.event().await;
        assert_eq!((&event["event"]["seq"], &event["ctx"]["attempt"]), (&json!(seq), &json!(1)));
    }
}
