//! ACK, NACK and MODACK.

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::client::{Client, frame_for, payload};
use crate::gateway::running::{Running, started, started_with_faults};

/// Returns a client that subscribes to `t`, which has `events` events with the ids `e1`, `e2`, ….
async fn consumer(events: usize, opts: Value) -> (Running, Client) {
    // Each back-off takes 400 ms.
    let running = started(&["groups.retry.first_ms=400", "groups.retry.factor=1"]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", opts).await;
    for n in 1..=events {
        let opts = json!({"id": format!("e{n}")});
        client.ok(json!({"op": "PUBLISH", "topic": "t", "payload": n, "opts": opts})).await;
    }
    (running, client)
}

fn ack(more: Value) -> Value {
    let mut frame = json!({"op": "ACK", "corr": "a", "topic": "t", "group": "g"});
    frame.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    frame
}

#[tokio::test]
async fn acks_of_one_and_many_ids_report_stale_ones() {
    let (running, mut client) = consumer(4, json!({})).await;
    for _ in 0..4 {
        client.event().await;
    }
    let ok = r#"{"op":"OK","corr":"a"}"#;
    let stale = r#"{"op":"OK","corr":"a","stale":true}"#;
    assert_eq!(client.ask(ack(json!({"id": "e1"}))).await, ok);
    assert_eq!(client.ask(ack(json!({"id": "e1"}))).await, stale);
    assert_eq!(client.ask(ack(json!({"ids": ["e2", "e3"]}))).await, ok);
    assert_eq!(client.ask(ack(json!({"ids": ["e4", "nobody"]}))).await, stale, "and e4 is done");
    drop(client);
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"from": "earliest"})).await;
    client.gets_nothing_for(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn a_stale_ack_does_not_end_the_lease_of_another_member() {
    let (running, mut first) = consumer(1, json!({"ackTimeoutMs": 200})).await;
    let mut second = running.connect().await;
    let event = first.event().await;
    // Paused, so that the redelivery goes to the other member.
    first.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"})).await;
    second.subscribe("t", "g", json!({"ackTimeoutMs": 1000})).await;
    let moved = second.event().await;
    assert_eq!(moved["ctx"]["attempt"], 2);
    for op in ["ACK", "NACK"] {
        assert_eq!(first.ask(frame_for(op, &event)).await, r#"{"op":"OK","stale":true}"#, "{op}");
    }
    assert_eq!(second.ask(frame_for("ACK", &moved)).await, r#"{"op":"OK"}"#);
}

#[tokio::test]
async fn ack_with_publish_is_one_commit_and_requires_the_lease() {
    let (running, mut client) = consumer(2, json!({})).await;
    let mut reader = running.connect().await;
    for topic in ["out.a", "out.b"] {
        reader.subscribe(topic, "r", json!({})).await;
    }
    client.event().await;
    client.event().await;
    let publish = json!([
        {"topic": "out.a", "payload": "x", "opts": {"id": "x", "caused_by": ["e1"]}},
        {"topic": "out.b", "payload": "y", "opts": {"id": "y"}},
    ]);
    assert_eq!(
        client.ask(ack(json!({"id": "e1", "publish": publish}))).await,
        r#"{"op":"OK","corr":"a","results":[{"id":"x","seq":1},{"id":"y","seq":1}]}"#
    );
    assert_eq!(reader.event().await["event"]["id"], "x");
    assert_eq!(reader.event().await["event"]["id"], "y");
    let publish = json!([{"topic": "out.a", "payload": "z"}]);
    for ids in [json!(["e1"]), json!(["e2", "e1"])] {
        assert_eq!(
            client.ask(ack(json!({"ids": ids, "publish": publish}))).await,
            r#"{"op":"ERR","corr":"a","code":"lease_lost","msg":"e1 is not leased to this subscription"}"#
        );
    }
    reader.gets_nothing_for(Duration::from_millis(100)).await;
    // An empty list publishes nothing, but still requires the lease.
    let none = ack(json!({"id": "e2", "publish": []}));
    assert_eq!(client.ask(none.clone()).await, r#"{"op":"OK","corr":"a","results":[]}"#);
    let again = client.ask(none).await;
    assert!(again.contains(r#""code":"lease_lost""#), "{again}");
}

#[tokio::test]
async fn nack_redelivers_after_its_delay_or_a_back_off() {
    let (_running, mut client) = consumer(1, json!({"maxAttempts": 9})).await;
    let mut nack = frame_for("NACK", &client.event().await);
    nack["corr"] = json!("n");
    nack["delay_ms"] = json!(0);
    nack["reason"] = json!("not today");
    assert_eq!(client.ask(nack.clone()).await, r#"{"op":"OK","corr":"n"}"#);
    assert_eq!(client.event().await["ctx"]["attempt"], 2);
    nack["delay_ms"] = json!(400);
    client.ok(nack.clone()).await;
    client.gets_nothing_for(Duration::from_millis(200)).await;
    assert_eq!(client.event().await["ctx"]["attempt"], 3);
    nack.as_object_mut().unwrap().remove("delay_ms");
    client.ok(nack).await;
    client.gets_nothing_for(Duration::from_millis(200)).await;
    assert_eq!(client.event().await["ctx"]["attempt"], 4);
}

#[tokio::test]
async fn many_events_are_nacked_together_or_dead_lettered_at_once() {
    let (running, mut client) = consumer(3, json!({})).await;
    let mut letters = running.connect().await;
    letters.subscribe("dlq.t", "undertaker", json!({})).await;
    for _ in 0..3 {
        client.event().await;
    }
    let nack = |more: Value| {
        let mut frame = ack(more);
        frame["op"] = json!("NACK");
        frame
    };
    let ok = r#"{"op":"OK","corr":"a"}"#;
    let stale = r#"{"op":"OK","corr":"a","stale":true}"#;
    assert_eq!(client.ask(nack(json!({"ids": ["e1", "e2"], "delay_ms": 0}))).await, ok);
    for _ in 0..2 {
        assert_eq!(client.event().await["ctx"]["attempt"], 2);
    }
    let dead = json!({"ids": ["e1", "e3", "nobody"], "dead": true, "reason": "no use"});
    assert_eq!(client.ask(nack(dead)).await, stale, "the two others are dead letters");
    for (id, attempts) in [("e1", 2), ("e3", 1)] {
        let letter = letters.event().await;
        let letter = payload(&letter);
        assert_eq!(letter["original"]["id"], id);
        assert_eq!((&letter["err"], &letter["attempts"]), (&json!("no use"), &json!(attempts)));
    }
    assert_eq!(client.ask(ack(json!({"ids": ["e1", "e3"]}))).await, stale);
    assert_eq!(client.ask(ack(json!({"id": "e2"}))).await, ok);
}

#[tokio::test]
async fn the_dead_letter_has_the_reason_of_the_last_nack() {
    let (running, mut client) = consumer(1, json!({"maxAttempts": 1})).await;
    let mut letters = running.connect().await;
    letters.subscribe("dlq.t", "undertaker", json!({})).await;
    let mut nack = frame_for("NACK", &client.event().await);
    nack["reason"] = json!("cannot \"read\" it");
    client.ok(nack).await;
    let letter = letters.event().await;
    assert_eq!(payload(&letter)["err"], "cannot \"read\" it");
    assert_eq!(payload(&letter)["attempts"], 1);
    assert_eq!(payload(&letter)["original"]["id"], "e1");
}

/// Even if it takes the store long to record the previous attempt.
#[tokio::test]
async fn redeliveries_precede_new_events() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({"maxInFlight": 1})).await;
    let which = |op: &str| json!({"op": op, "topic": "t", "group": "g"});
    client.ok(which("PAUSE")).await;
    for n in 1..=2 {
        client.publish("t", json!(n)).await;
    }
    faults.shut_gate();
    client.ok(which("RESUME")).await;
    let mut nack = frame_for("NACK", &client.event().await);
    nack["delay_ms"] = json!(0);
    client.send(&nack).await;
    client.gets_nothing_for(Duration::from_millis(300)).await;
    faults.open_gate();
    assert_eq!(client.answer().await, r#"{"op":"OK"}"#);
    let event = client.event().await;
    assert_eq!((payload(&event), &event["ctx"]["attempt"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn modack_extends_a_lease() {
    let (_running, mut client) = consumer(1, json!({"ackTimeoutMs": 300})).await;
    let event = client.event().await;
    let mut modack = frame_for("MODACK", &event);
    modack["corr"] = json!("m");
    modack["extend_ms"] = json!(1);
    assert_eq!(client.ask(modack.clone()).await, r#"{"op":"OK","corr":"m"}"#);
    // At least a second, which is longer than the original lease.
    client.gets_nothing_for(Duration::from_millis(600)).await;
    assert_eq!(client.event().await["ctx"]["attempt"], 2);
    modack["extend_ms"] = json!(60_000);
    client.ok(modack.clone()).await;
    client.gets_nothing_for(Duration::from_millis(600)).await;
    client.ack(&event).await;
    assert_eq!(
        client.ask(modack).await,
        r#"{"op":"ERR","corr":"m","code":"lease_lost","msg":"e1 is not leased to this subscription"}"#
    );
}
