//! Provokes each error code of the gateway.

use std::future::Future;
use std::pin::Pin;

use prombus_proto::ErrorCode;
use serde_json::{Value, json};

use crate::gateway::client::parsed;
use crate::gateway::running::{started, started_with_faults, started_with_unreadable_cursor};

type Answer = Pin<Box<dyn Future<Output = String>>>;

/// Provokes each code: the answer to a frame with the `corr` `c`.
fn answers() -> Vec<(ErrorCode, Answer)> {
    let publish = || json!({"op": "PUBLISH", "corr": "c", "topic": "t", "payload": 1});
    let frame_for = |op: &str| json!({"op": op, "corr": "c", "topic": "t", "group": "g", "id": "x", "extend_ms": 1});
    let tokens = r#"auth.tokens=[{token="one",scopes=["subscribe:t"]}]"#;
    vec![
        (ErrorCode::BadFrame, alone(json!({"op": "PUBLISH", "corr": "c", "topic": "t"}))),
        (ErrorCode::UnknownOp, alone(json!({"op": "publish", "corr": "c"}))),
        (
            ErrorCode::BadTopic,
            alone(json!({"op": "PUBLISH", "corr": "c", "topic": "T", "payload": 1})),
        ),
        (
            ErrorCode::BadGroup,
            alone(json!({"op": "SUBSCRIBE", "corr": "c", "topic": "t", "group": ""})),
        ),
        (ErrorCode::PayloadTooLarge, Box::pin(payload_too_large())),
        (ErrorCode::Unauthorized, after(&[tokens], vec![], publish())),
        (
            ErrorCode::BadToken,
            after(&[tokens], vec![], json!({"op": "AUTH", "corr": "c", "token": "two"})),
        ),
        (
            ErrorCode::Forbidden,
            after(&[tokens], vec![json!({"op": "AUTH", "token": "one"})], publish()),
        ),
        (
            ErrorCode::RateLimited,
            after(
                &[
                    "limits.enabled=true",
                    "limits.connection.capacity=1",
                    "limits.connection.refill_per_sec=1",
                ],
                vec![publish()],
                publish(),
            ),
        ),
        (
            ErrorCode::LimitExceeded,
            after(
                &["limits.enabled=true", "limits.max_topics=1"],
                vec![publish()],
                json!({"op": "PUBLISH", "corr": "c", "topic": "u", "payload": 1}),
            ),
        ),
        (
            ErrorCode::AlreadySubscribed,
            after(&[], vec![frame_for("SUBSCRIBE")], frame_for("SUBSCRIBE")),
        ),
        (ErrorCode::NotSubscribed, alone(frame_for("ACK"))),
        (
            ErrorCode::UnknownId,
            alone(json!({
                "op": "SUBSCRIBE", "corr": "c", "topic": "t", "group": "g",
                "opts": {"from": "afterId", "afterId": "nobody"},
            })),
        ),
        (ErrorCode::LeaseLost, after(&[], vec![frame_for("SUBSCRIBE")], frame_for("MODACK"))),
        (ErrorCode::Conflict, Box::pin(conflict())),
        (ErrorCode::StorageUnavailable, Box::pin(storage_unavailable())),
        (ErrorCode::ShuttingDown, Box::pin(shutting_down())),
        (ErrorCode::Internal, Box::pin(internal())),
    ]
}

/// Tested below: the `corr` of its frame cannot be read.
const WITHOUT_CORR: [ErrorCode; 1] = [ErrorCode::BadJson];

/// Codes that the gateway does not use, and why.
const UNUSED: [(ErrorCode, &str); 3] = [
    (ErrorCode::UnknownTopic, "only HTTP requires that a topic exists"),
    (ErrorCode::UnknownGroup, "SUBSCRIBE creates the group"),
    (ErrorCode::SchemaViolation, "topics have no schemas yet"),
];

fn alone(frame: Value) -> Answer {
    after(&[], vec![], frame)
}

/// The answer to `frame` after `others`, which are answered with OK.
fn after(set: &[&str], others: Vec<Value>, frame: Value) -> Answer {
    let set: Vec<String> = set.iter().map(|&text| text.to_owned()).collect();
    Box::pin(async move {
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let running = started(&set).await;
        let mut client = running.connect().await;
        for other in others {
            client.ok(other).await;
        }
        client.ask(frame).await
    })
}

/// A payload that fits in the largest frame, but not together with the rest of its event.
async fn payload_too_large() -> String {
    let running = started(&["gateway.max_frame_bytes=16777216"]).await;
    let mut client = running.connect().await;
    let payload = "x".repeat((16 << 20) - 100);
    client.ask(json!({"op": "PUBLISH", "corr": "c", "topic": "t", "payload": payload})).await
}

/// An ACK with `publish` and `mark` for a marked event.
async fn conflict() -> String {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    let id = client.publish("t", json!(1)).await["id"].clone();
    client.event().await;
    client.ok(json!({"op": "MARK", "topic": "t", "group": "g", "id": id})).await;
    let publish = json!([{"topic": "u", "payload": 1}]);
    client
        .ask(json!({
            "op": "ACK", "corr": "c", "topic": "t", "group": "g",
            "id": id, "mark": true, "publish": publish,
        }))
        .await
}

async fn storage_unavailable() -> String {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    faults.fail_commits_before(1);
    let publish = json!({"op": "PUBLISH", "corr": "c", "topic": "t", "payload": 1});
    let answer = client.ask(publish.clone()).await;
    client.ok(publish).await;
    answer
}

async fn shutting_down() -> String {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    // A connection with a subscription is not closed immediately.
    client.subscribe("t", "g", json!({})).await;
    let stopped = tokio::spawn(running.server.stop());
    tokio::task::yield_now().await;
    let publish = json!({"op": "PUBLISH", "corr": "c", "topic": "t", "payload": 1});
    let answer = client.ask(publish).await;
    drop(client);
    stopped.await.unwrap().unwrap();
    answer
}

async fn internal() -> String {
    let running = started_with_unreadable_cursor().await;
    let mut client = running.connect().await;
    let subscribe = json!({"op": "SUBSCRIBE", "corr": "c", "topic": "t", "group": "g"});
    let answer = client.ask(subscribe).await;
    client.assert_lives().await;
    answer
}

#[tokio::test]
async fn every_code_is_provoked_or_unused() {
    let mut known: Vec<_> = UNUSED.map(|(code, _)| code).into_iter().chain(WITHOUT_CORR).collect();
    for (code, answer) in answers() {
        let answer = answer.await;
        let start = format!(r#"{{"op":"ERR","corr":"c","code":"{code}","msg":""#);
        assert!(answer.starts_with(&start), "{answer} instead of {code}");
        assert!(!parsed(&answer)["msg"].as_str().unwrap().is_empty());
        let has_time = answer.contains("retry_after_ms");
        assert_eq!(has_time, code == ErrorCode::RateLimited, "{answer}");
        known.push(code);
    }
    for code in ErrorCode::ALL {
        let times = known.iter().filter(|known| *known == code).count();
        assert_eq!(times, 1, "{code} has to be in exactly one of the lists");
    }
}

#[tokio::test]
async fn bad_json_is_refused_without_a_corr() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    for text in ["", "{", "nonsense", r#"{"op":"AUTH","corr":"c","token":"}"#] {
        client.send_text(text).await;
        let answer = client.answer().await;
        let start = r#"{"op":"ERR","code":"bad_json","msg":"the frame is not JSON: "#;
        assert!(answer.starts_with(start), "{text:?}: {answer}");
    }
    client.assert_lives().await;
}

#[tokio::test]
async fn a_storage_failure_is_reported_by_every_operation_and_loses_nothing() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = running.connect().await;
    let subscribe = json!({"op": "SUBSCRIBE", "topic": "t", "group": "g"});
    // Not a single one: retention reads, too.
    faults.fail_reads(usize::MAX);
    assert_eq!(parsed(&client.ask(subscribe.clone()).await)["code"], "storage_unavailable");
    faults.fail_reads(0);
    faults.fail_commits_before(1);
    assert_eq!(parsed(&client.ask(subscribe.clone()).await)["code"], "storage_unavailable");
    client.ok(subscribe).await;
    let batch = json!({"op": "PUBLISH", "topic": "t", "events": [{"payload": 1}, {"payload": 2}]});
    faults.fail_commits_before(1);
    assert_eq!(parsed(&client.ask(batch.clone()).await)["code"], "storage_unavailable");
    client.ok(batch).await;
    let event = client.event().await;
    assert_eq!(event["event"]["seq"], 1, "the refused events are not stored");
    faults.fail_commits_before(usize::MAX);
    let ack = json!({
        "op": "ACK", "topic": "t", "group": "g", "id": event["event"]["id"],
        "publish": [{"topic": "u", "payload": 1}],
    });
    assert_eq!(parsed(&client.ask(ack.clone()).await)["code"], "storage_unavailable");
    faults.heal();
    // The lease is still valid, and the group retries.
    let answer = client.ok(ack).await;
    assert_eq!(answer["results"][0]["seq"], 1);
}
