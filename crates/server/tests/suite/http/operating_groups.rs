//! `/groups/{topic}/{group}`: looking at a group, moving it, changing it and deleting it.

use serde_json::{Value, json};

use crate::gateway::auditing::Log;
use crate::gateway::client::{Client, frame_for};
use crate::gateway::running::{Running, started};
use crate::http::client::HttpClient;

const TOKENS: &str = r#"auth.tokens=[
    {name="billing",token="billing-secret",scopes=["publish:orders","consume:orders/billing","read:orders"]},
    {name="operator",token="operator-secret",scopes=["manage:orders"]},
]"#;

const GROUP: &str = "/groups/orders/billing";
const SEEK: &str = "/groups/orders/billing/seek";

/// Publishes the events `e1` to `e{count}`, whose `ts` are 100, 200 and so on.
async fn publish(client: &mut HttpClient, count: u64) {
    for n in 1..=count {
        let path = format!("/publish/orders?id=e{n}&ts={}", n * 100);
        client.post(&path, n.to_string()).await.ok();
    }
}

async fn member(running: &Running, opts: Value) -> Client {
    let mut consumer = running.connect().await;
    consumer.subscribe("orders", "billing", opts).await;
    consumer
}

async fn consume(consumer: &mut Client, count: u64) {
    for _ in 0..count {
        let event = consumer.event().await;
        consumer.ack(&event).await;
    }
}

#[tokio::test]
async fn shows_the_members_and_what_the_oldest_event_waits_for() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let opts = json!({"from": "earliest", "maxInFlight": 2, "maxAttempts": 7});
    let mut consumer = member(&running, opts).await;
    publish(&mut client, 4).await;
    consume(&mut consumer, 1).await;
    consumer.event().await;
    consumer.event().await;

    let mut group = client.get(GROUP).await.ok();
    let created = group["created"].as_u64().unwrap();
    assert!(created > 1_000_000_000_000);
    let hour = 3_600_000;
    assert!(group["lag"]["ms"].take().as_u64().unwrap() < hour);
    assert!(group["oldest"]["age_ms"].take().as_u64().unwrap() < hour);
    let deadline = group["oldest"]["deadline_ms"].take().as_u64().unwrap();
    assert!((1..=30_000).contains(&deadline), "{deadline}");
    let expected = json!({
        "topic": "orders", "group": "billing", "in_flight": 2,
        "members": [{
            "principal": null, "in_flight": 2, "max_in_flight": 2,
            "ack_timeout_ms": 30_000, "paused": false,
        }],
        "lag": {"events": 3, "ms": null}, "max_attempts": 7, "created": created, "seq": 1,
        "redriving": 0, "remote": false,
        "oldest": {
            "seq": 2, "id": "e2", "age_ms": null, "deliveries": 1, "failures": 0,
            "last_reason": null, "why": "in_flight", "deadline_ms": null,
        },
    });
    assert_eq!(group, expected);

    consumer.ok(json!({"op": "PAUSE", "topic": "orders", "group": "billing"})).await;
    consumer
        .ok(json!({
            "op": "NACK", "topic": "orders", "group": "billing", "id": "e2",
            "reason": "no route", "delay_ms": 60_000,
        }))
        .await;
    let group = client.get(GROUP).await.ok();
    assert_eq!(group["members"][0]["paused"], true);
    let oldest = &group["oldest"];
    assert_eq!((&oldest["why"], &oldest["failures"]), (&json!("backing_off"), &json!(1)));
    assert_eq!(oldest["last_reason"], "no route");
    assert!((1..=60_000).contains(&oldest["retry_ms"].as_u64().unwrap()), "{oldest}");

    consumer.ok(json!({"op": "UNSUBSCRIBE", "topic": "orders", "group": "billing"})).await;
    let group = client.get(GROUP).await.ok();
    assert_eq!((&group["members"], &group["in_flight"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn a_group_that_has_finished_everything_has_no_oldest_event() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 2).await;
    let mut consumer = member(&running, json!({"from": "earliest"})).await;
    consume(&mut consumer, 2).await;
    let group = client.get(GROUP).await.ok();
    assert_eq!((&group["oldest"], &group["seq"]), (&Value::Null, &json!(2)));
    assert_eq!(group["lag"], json!({"events": 0, "ms": 0}));
    drop(consumer);
    publish(&mut client, 3).await;
    client.post(SEEK, r#"{"to": "seq", "seq": 3}"#).await.ok();
    assert_eq!(client.get(GROUP).await.ok()["oldest"]["seq"], 3);
}

#[tokio::test]
async fn seeks_to_every_kind_of_position() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 4).await;
    let mut consumer = member(&running, json!({"from": "earliest"})).await;
    consume(&mut consumer, 4).await;
    consumer.ok(json!({"op": "UNSUBSCRIBE", "topic": "orders", "group": "billing"})).await;
    for (to, next, events) in [
        (json!({"to": "earliest"}), 1, 4),
        (json!({"to": "ts", "ts": 250}), 3, 2),
        (json!({"to": "afterId", "afterId": "e3"}), 4, 1),
        (json!({"to": "seq", "seq": 2}), 2, 3),
        (json!({"to": "latest"}), 5, 0),
        (json!({"to": "earliest", "ts": null, "dry_run": null, "honour_marks": null}), 1, 4),
    ] {
        let sought = client.post(SEEK, to.to_string()).await.ok();
        let expected = json!({
            "topic": "orders", "group": "billing", "next_seq": next, "events": events,
            "marks_removed": 0, "dry_run": false,
        });
        assert_eq!(sought, expected, "{to}");
        let lag = client.get("/lag?topic=orders&group=billing").await.ok();
        assert_eq!(lag["events"], events, "{to}");
        assert_eq!(client.get(GROUP).await.ok()["seq"], next - 1, "{to}");
    }
}

#[tokio::test]
async fn a_seek_with_connected_members_delivers_again() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 3).await;
    let mut consumer = member(&running, json!({"from": "earliest"})).await;
    consume(&mut consumer, 2).await;
    let leased = consumer.event().await;
    assert_eq!(leased["event"]["id"], "e3");
    client.post(SEEK, r#"{"to": "seq", "seq": 2}"#).await.ok();
    // The lease from before the seek is lost.
    let mut again = Vec::new();
    for _ in 0..2 {
        let event = consumer.event().await;
        again.push(event["event"]["id"].clone());
        consumer.ack(&event).await;
    }
    assert_eq!(again, ["e2", "e3"]);
    let late = consumer.ok(frame_for("ACK", &leased)).await;
    assert_eq!(late["stale"], true);
    assert_eq!(client.get(GROUP).await.ok()["seq"], 3);
}

#[tokio::test]
async fn a_seek_removes_the_marks_unless_they_are_honoured() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 2).await;
    let mut consumer = member(&running, json!({"from": "earliest"})).await;
    for _ in 0..2 {
        let event = consumer.event().await;
        let mut ack = frame_for("ACK", &event);
        ack["mark"] = true.into();
        consumer.ok(ack).await;
    }
    let seen = json!({"op": "SEEN", "topic": "orders", "group": "billing", "ids": ["e1", "e2"]});
    let honoured = client.post(SEEK, r#"{"to": "earliest", "honour_marks": true}"#).await.ok();
    assert_eq!(honoured["marks_removed"], 0);
    assert_eq!(consumer.ok(seen.clone()).await["seen"], json!(["e1", "e2"]));
    let removed = client.post(SEEK, r#"{"to": "earliest"}"#).await.ok();
    assert_eq!(removed["marks_removed"], 2);
    assert_eq!(consumer.ok(seen).await["seen"], json!([]));
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 3).await;
    let mut consumer = member(&running, json!({"from": "earliest"})).await;
    consume(&mut consumer, 2).await;
    let leased = consumer.event().await;
    let before = client.get("/cursors?topic=orders").await.ok();
    let sought = client.post(SEEK, r#"{"to": "earliest", "dry_run": true}"#).await.ok();
    let expected = json!({
        "topic": "orders", "group": "billing", "next_seq": 1, "events": 3,
        "marks_removed": 0, "dry_run": true,
    });
    assert_eq!(sought, expected);
    assert_eq!(client.get("/cursors?topic=orders").await.ok(), before);
    // The lease is still valid.
    let answer = consumer.ack(&leased).await;
    assert_eq!(answer.get("stale"), None, "{answer}");
}

#[tokio::test]
async fn rejects_a_seek_that_is_unclear() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 1).await;
    member(&running, json!({})).await;
    for (body, reason) in [
        ("", "to is missing"),
        ("[]", "the body must be a JSON object"),
        (r#"{"to": "end"}"#, "to must be earliest, latest, ts, afterId or seq"),
        (r#"{"to": "ts"}"#, "ts is missing"),
        (r#"{"to": "ts", "ts": "7d"}"#, "ts must be a whole number"),
        (r#"{"to": "seq", "seq": 0}"#, "seq must be a whole number from 1"),
        (r#"{"to": "latest", "seq": 1}"#, "seq requires"),
        (r#"{"to": "seq", "seq": 1, "afterId": "e1"}"#, "afterId requires"),
        (r#"{"to": "earliest", "dry_run": 1}"#, "dry_run must be true or false"),
        (r#"{"to": "earliest", "dryRun": true}"#, "unknown member \"dryRun\""),
    ] {
        let message = client.post(SEEK, body).await.refused(400, "bad_frame");
        assert!(message.contains(reason), "{body}: {message}");
    }
    client.post(SEEK, "{").await.refused(400, "bad_json");
    let message = client.post(&format!("{SEEK}?dry_run=1"), "").await.refused(400, "bad_frame");
    assert!(message.contains("\"dry_run\"; this path takes none"), "{message}");
    client.post(SEEK, " ".repeat(5000)).await.refused(413, "payload_too_large");
    let after_nobody = r#"{"to": "afterId", "afterId": "nobody"}"#;
    client.post(SEEK, after_nobody).await.refused(404, "unknown_id");
}

#[tokio::test]
async fn changes_the_attempts_of_a_group() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 1).await;
    member(&running, json!({"from": "earliest"})).await;
    let set = client.put(GROUP, r#"{"max_attempts": 9}"#).await.ok();
    assert_eq!((&set["max_attempts"], &set["group"]), (&json!(9), &json!("billing")));
    assert_eq!(client.get(GROUP).await.ok()["max_attempts"], 9);
    let reset = client.put(GROUP, r#"{"max_attempts": null}"#).await.ok();
    assert_eq!(reset["max_attempts"], 5);
    for (body, reason) in [
        ("{}", "max_attempts is missing"),
        ("", "max_attempts is missing"),
        (r#"{"max_attempts": 0}"#, "max_attempts must be a whole number from 1 to 1000"),
        (r#"{"max_attempts": 1001}"#, "max_attempts must be a whole number from 1 to 1000"),
        (r#"{"maxAttempts": 5}"#, "unknown member \"maxAttempts\"; expected max_attempts"),
    ] {
        let message = client.put(GROUP, body).await.refused(400, "bad_frame");
        assert!(message.contains(reason), "{body}: {message}");
    }
}

#[tokio::test]
async fn a_deleted_group_is_gone_and_its_subscriptions_end() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 1).await;
    let mut consumer = member(&running, json!({})).await;
    let deleted = client.ask("DELETE", GROUP, &[], "").await.ok();
    assert_eq!(deleted, json!({"topic": "orders", "group": "billing", "deleted": true}));
    let ended = json!({
        "op": "ENDED", "topic": "orders", "group": "billing", "reason": "group_deleted",
    });
    assert_eq!(consumer.next_frame().await, ended);
    client.get(GROUP).await.refused(404, "unknown_group");
    assert_eq!(client.get("/groups?topic=orders").await.ok()["groups"], json!([]));
    // It can begin again, as a new group.
    consumer.subscribe("orders", "billing", json!({"from": "earliest"})).await;
    assert_eq!(consumer.event().await["event"]["id"], "e1");
}

#[tokio::test]
async fn unknown_groups_and_topics_are_refused() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    publish(&mut client, 1).await;
    let (seek, set) = (r#"{"to": "earliest"}"#, r#"{"max_attempts": 9}"#);
    for (topic, code) in [("orders", "unknown_group"), ("nothing", "unknown_topic")] {
        let group = format!("/groups/{topic}/nobody");
        client.get(&group).await.refused(404, code);
        client.put(&group, set).await.refused(404, code);
        client.ask("DELETE", &group, &[], "").await.refused(404, code);
        client.post(&format!("{group}/seek"), seek).await.refused(404, code);
    }
    client.get("/groups/Orders/billing").await.refused(400, "bad_topic");
    let message = client.get("/groups/orders/Bill%20ing").await.refused(400, "bad_group");
    assert!(message.contains("the group in the path: a name may only contain"), "{message}");
    // Names may be percent-encoded.
    let mut consumer = running.connect().await;
    consumer.subscribe("orders", "a.b", json!({})).await;
    assert_eq!(client.get("/groups/or%64ers/a%2Eb").await.ok()["group"], "a.b");
}

#[tokio::test]
async fn looking_needs_the_right_to_consume_and_changing_that_to_manage() {
    let log = Log::default();
    let _logging = log.start();
    let running = started(&[TOKENS, "limits.enabled=true"]).await;
    let mut billing = HttpClient::connect(&running).await.with_token("billing-secret");
    let mut operator = HttpClient::connect(&running).await.with_token("operator-secret");
    publish(&mut billing, 2).await;
    let mut consumer = running.connect().await;
    consumer.ok(json!({"op": "AUTH", "token": "billing-secret"})).await;
    consumer.subscribe("orders", "billing", json!({"from": "earliest"})).await;

    let members = billing.get(GROUP).await.ok()["members"].clone();
    assert_eq!(members[0]["principal"], "token billing");
    billing.get("/groups/orders/mail").await.refused(403, "forbidden");
    billing.put(GROUP, r#"{"max_attempts": 9}"#).await.refused(403, "forbidden");
    billing.post(SEEK, r#"{"to": "latest"}"#).await.refused(403, "forbidden");
    billing.ask("DELETE", GROUP, &[], "").await.refused(403, "forbidden");
    operator.get("/groups/other/billing").await.refused(403, "forbidden");

    operator.get(GROUP).await.ok();
    operator.put(GROUP, r#"{"max_attempts": 9}"#).await.ok();
    operator.put(GROUP, r#"{"max_attempts": null}"#).await.ok();
    operator.post(SEEK, r#"{"to": "earliest", "dry_run": true}"#).await.ok();
    operator.post(SEEK, r#"{"to": "seq", "seq": 2}"#).await.ok();
    operator.ask("DELETE", GROUP, &[], "").await.ok();
    let lines = log.lines();
    let changes = lines.iter().filter(|line| line["message"] == "changed");
    let changes: Vec<_> = changes
        .map(|line| {
            assert_eq!(
                (&line["principal"], &line["topic"]),
                (&json!("operator"), &json!("orders"))
            );
            line["change"].as_str().unwrap()
        })
        .collect();
    let expected = [
        "group billing: max_attempts 9",
        "group billing: max_attempts default",
        "group billing: moved to 2, 0 marks removed",
        "group billing: deleted",
    ];
    assert_eq!(changes, expected);
}
