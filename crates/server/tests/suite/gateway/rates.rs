//! Limits of rate: refused publishes, and deliveries that wait.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::client::parsed;
use crate::gateway::running::started;

fn publish(topic: &str) -> Value {
    json!({"op": "PUBLISH", "topic": topic, "payload": 1})
}

/// Its exact text, and that waiting as long as it says helps.
async fn refused_and_then_not(set: &[&str], frame: Value, message: &str) {
    let running = started(set).await;
    let mut client = running.connect().await;
    let mut answer = client.ask(frame.clone()).await;
    // As many as there are tokens pass; they come back slowly.
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
async fn a_connection_has_its_limit() {
    refused_and_then_not(&CONNECTION, publish("t"), "conn publish rate exceeded").await;
}

#[tokio::test]
async fn a_topic_has_its_limit_for_all_connections_together() {
    let set = ["limits.enabled=true", "limits.topic.capacity=2", "limits.topic.refill_per_sec=2"];
    refused_and_then_not(&set, publish("t"), "topic publish rate exceeded").await;
    let own = [
        "limits.enabled=true",
        r#"topics."t".limit.capacity=2"#,
        r#"topics."t".limit.refill_per_sec=2"#,
    ];
    refused_and_then_not(&own, publish("t"), "topic publish rate exceeded").await;
    let running = started(&own).await;
    let (mut one, mut two) = (running.connect().await, running.connect().await);
    one.ok(publish("t")).await;
    two.ok(publish("t")).await;
    assert_eq!(parsed(&one.ask(publish("t")).await)["code"], "rate_limited");
    one.ok(publish("u")).await;
}

/// What is published with an ACK is all or nothing for the limit, too: a refusal takes no tokens,
/// or waiting as long as it says would never be enough.
#[tokio::test]
async fn events_with_an_ack_are_refused_together() {
    let running = started(&CONNECTION).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let mut publisher = running.connect().await;
    publisher.ok(publish("t")).await;
    let event = client.event().await;
    client.ok(publish("u")).await;
    // One token went with the delivery, one with the publish: two and a little are left.
    let mut ack = crate::gateway::client::about("ACK", &event);
    ack["publish"] = json!(["a", "b", "a", "b"].map(|topic| json!({"topic": topic, "payload": 1})));
    let answer = parsed(&client.ask(ack.clone()).await);
    assert_eq!(answer["msg"], "conn publish rate exceeded", "{answer}");
    let wait = answer["retry_after_ms"].as_u64().unwrap();
    tokio::time::sleep(Duration::from_millis(wait)).await;
    client.ok(ack).await;
}

#[tokio::test]
async fn a_batch_that_no_bucket_holds_has_no_time_to_try_again() {
    let running = started(&CONNECTION).await;
    let mut client = running.connect().await;
    let events: Vec<_> = (0..5).map(|n| json!({"payload": n})).collect();
    assert_eq!(
        client.ask(json!({"op": "PUBLISH", "topic": "t", "events": events})).await,
        r#"{"op":"ERR","code":"rate_limited","msg":"conn publish rate exceeded"}"#
    );
    let events: Vec<_> = (0..4).map(|n| json!({"payload": n})).collect();
    client.ok(json!({"op": "PUBLISH", "topic": "t", "events": events})).await;
}

#[tokio::test]
async fn deliveries_share_the_bucket_wait_for_tokens_and_go_on_by_themselves() {
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
    // Its deliveries took what its publishes would need.
    let refused = parsed(&consumer.ask(publish("u")).await);
    assert_eq!(refused["msg"], "conn publish rate exceeded", "{refused}");
    // Nobody does anything, and the rest comes.
    for seq in 11..=20 {
        let event = consumer.event().await;
        assert_eq!((&event["event"]["seq"], &event["ctx"]["attempt"]), (&json!(seq), &json!(1)));
    }
}
