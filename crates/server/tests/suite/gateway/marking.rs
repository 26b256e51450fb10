//! SEEN, MARK, and the mark of an ACK.

use serde_json::{Value, json};

use crate::gateway::client::{Client, frame_for, parsed};
use crate::gateway::running::{Running, started, started_with_faults};

fn seen(ids: Value) -> Value {
    json!({"op": "SEEN", "topic": "t", "group": "g", "ids": ids, "corr": "s"})
}

fn mark(ids: Value) -> Value {
    json!({"op": "MARK", "topic": "t", "group": "g", "ids": ids, "corr": "m"})
}

/// Returns a client with the events `e1` to `e3` on lease.
async fn consumer(running: &Running) -> Client {
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    for id in ["e1", "e2", "e3"] {
        let opts = json!({"id": id});
        client.ok(json!({"op": "PUBLISH", "topic": "t", "payload": 1, "opts": opts})).await;
    }
    for _ in 0..3 {
        client.event().await;
    }
    client
}

#[tokio::test]
async fn marks_need_no_subscription_and_are_visible_to_others() {
    let running = started(&[]).await;
    let mut marker = running.connect().await;
    assert_eq!(marker.ask(mark(json!(["b", "c"]))).await, r#"{"op":"OK","corr":"m"}"#);
    let mut other = running.connect().await;
    assert_eq!(
        other.ask(seen(json!(["a", "c", "b"]))).await,
        r#"{"op":"OK","corr":"s","seen":["c","b"]}"#
    );
    let other_group = json!({"op": "SEEN", "topic": "t", "group": "h", "id": "b"});
    assert_eq!(other.ask(other_group).await, r#"{"op":"OK","seen":[]}"#);
}

#[tokio::test]
async fn seen_reflects_all_earlier_frames() {
    let running = started(&[]).await;
    let mut client = consumer(&running).await;
    let ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": "e2", "mark": true});
    let all = || seen(json!(["e1", "e2", "e3"]));
    client.send_all([all(), mark(json!(["e1"])), all(), ack, all()]).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(parsed(&client.answer().await)["seen"].clone());
    }
    assert_eq!(answers, [json!([]), Value::Null, json!(["e1"]), Value::Null, json!(["e1", "e2"])]);
}

#[tokio::test]
async fn pipelined_acks_are_marked_individually() {
    let running = started(&[]).await;
    let mut client = consumer(&running).await;
    let ack = |id: &str, mark: Value| json!({"op": "ACK", "topic": "t", "group": "g", "id": id, "mark": mark});
    let frames =
        [ack("e1", json!(true)), ack("e2", json!(false)), ack("e3", json!({"ttl_ms": 5000}))];
    client.send_all(frames).await;
    for _ in 0..3 {
        assert_eq!(client.answer().await, r#"{"op":"OK"}"#);
    }
    assert_eq!(
        client.ask(seen(json!(["e1", "e2", "e3"]))).await,
        r#"{"op":"OK","corr":"s","seen":["e1","e3"]}"#
    );
    assert_eq!(client.ask(ack("e2", json!(true))).await, r#"{"op":"OK","stale":true}"#);
    assert_eq!(client.ask(seen(json!(["e2"]))).await, r#"{"op":"OK","corr":"s","seen":["e2"]}"#);
}

#[tokio::test]
async fn a_mark_expires() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let mut short = mark(json!(["a"]));
    short["ttl_ms"] = json!(1000);
    client.ok(short).await;
    client.ok(mark(json!(["b"]))).await;
    assert_eq!(client.ok(seen(json!(["a", "b"]))).await["seen"], json!(["a", "b"]));
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(client.ok(seen(json!(["a", "b"]))).await["seen"], json!(["b"]));
}

#[tokio::test]
async fn a_failed_ack_neither_marks_nor_ends_the_lease() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = consumer(&running).await;
    faults.fail_commits_before(1);
    let refused = parsed(&client.ask(mark(json!(["e1"]))).await);
    assert_eq!(refused["code"], "storage_unavailable");
    faults.fail_commits_before(1);
    let mut ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": "e1", "mark": true});
    assert_eq!(parsed(&client.ask(ack.clone()).await)["code"], "storage_unavailable");
    assert_eq!(client.ok(seen(json!(["e1"]))).await["seen"], json!([]));
    ack["publish"] = json!([{"topic": "u", "payload": 1}]);
    assert_eq!(client.ok(ack).await["results"][0]["seq"], 1);
    assert_eq!(client.ok(seen(json!(["e1"]))).await["seen"], json!(["e1"]));
}

#[tokio::test]
async fn marks_take_tokens_and_so_do_acks_that_mark() {
    let running = started(&[
        "limits.enabled=true",
        "limits.connection.capacity=1300",
        "limits.connection.refill_per_sec=1",
    ])
    .await;
    // Few tokens for its subscription, its publishes and its deliveries.
    let mut client = consumer(&running).await;
    let ids = |count: usize| (0..count).map(|number| format!("id-{number}")).collect::<Vec<_>>();
    // 400 for the marks, and four for the lookup of ids that are not leased.
    let acked = ids(400);
    client.ok(json!({"op": "ACK", "topic": "t", "group": "g", "ids": acked, "mark": true})).await;
    client.ok(mark(json!(ids(500)))).await;
    let refused = parsed(&client.ask(mark(json!(ids(500)))).await);
    assert_eq!(refused["code"], "rate_limited");
    assert_eq!(refused["msg"], "conn publish rate exceeded");
    assert!(refused["retry_after_ms"].as_u64().unwrap() > 0);
    client.ok(mark(json!(ids(300)))).await;
}

#[tokio::test]
async fn seen_and_mark_require_the_right_to_consume() {
    let tokens = r#"auth.tokens=[
        {token="subscriber",scopes=["subscribe:t"]},
        {token="member",scopes=["consume:t/g"]},
        {token="stranger",scopes=["consume:t/h"]},
        {token="reader",scopes=["read:t"]},
        {token="writer",scopes=["publish:**"]},
    ]"#;
    let running = started(&[tokens]).await;
    for (token, code) in [
        ("subscriber", Value::Null),
        ("member", Value::Null),
        ("stranger", json!("forbidden")),
        ("reader", json!("forbidden")),
        ("writer", json!("forbidden")),
    ] {
        let mut client = running.connect().await;
        client.ok(json!({"op": "AUTH", "token": token})).await;
        for frame in [seen(json!(["a"])), mark(json!(["a"]))] {
            assert_eq!(parsed(&client.ask(frame).await)["code"], code, "{token}");
        }
    }
}

#[tokio::test]
async fn an_ack_of_another_members_event_marks_it_and_keeps_the_lease() {
    let running = started(&[]).await;
    let mut holder = consumer(&running).await;
    let mut other = running.connect().await;
    other.subscribe("t", "g", json!({})).await;
    let mut ack = json!({"op": "ACK", "topic": "t", "group": "g", "id": "e1", "mark": true});
    assert_eq!(other.ask(ack.clone()).await, r#"{"op":"OK","stale":true}"#);
    ack["mark"] = json!(false);
    assert_eq!(holder.ok(ack).await, json!({"op": "OK"}));
    let event = json!({"topic": "t", "group": "g", "event": {"id": "e2"}});
    holder.ok(frame_for("ACK", &event)).await;
}

/// The ids that were on lease are done and marked, whatever happens to the others.
#[tokio::test]
async fn only_acks_of_stale_ids_fail_if_those_cannot_be_looked_up() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = consumer(&running).await;
    client.ok(json!({"op": "PAUSE", "topic": "t", "group": "g"})).await;
    let ack =
        |ids: Value| json!({"op": "ACK", "topic": "t", "group": "g", "ids": ids, "mark": true});
    faults.fail_reads(1);
    let frames = [ack(json!(["e1"])), ack(json!(["e2", "old"])), ack(json!(["e3"]))];
    client.send_all(frames.clone()).await;
    assert_eq!(client.answer().await, r#"{"op":"OK"}"#);
    assert_eq!(parsed(&client.answer().await)["code"], "storage_unavailable");
    assert_eq!(client.answer().await, r#"{"op":"OK"}"#);
    assert_eq!(
        client.ok(seen(json!(["e1", "e2", "e3", "old"]))).await["seen"],
        json!(["e1", "e2", "e3"])
    );
    // Sending it again does no harm.
    assert_eq!(client.ask(frames[1].clone()).await, r#"{"op":"OK","stale":true}"#);
}
