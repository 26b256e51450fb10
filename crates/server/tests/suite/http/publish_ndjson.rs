//! Many events per request as NDJSON, stored all or none.

use serde_json::{Value, json};

use crate::gateway::running::{Running, started, started_with_faults};
use crate::http::client::{HttpClient, Raw};

const NDJSON: &str = "content-type: application/x-ndjson\r\n";

/// The number of events in the topic; 0 if it does not exist.
async fn events(running: &Running, topic: &str) -> Value {
    let mut client = HttpClient::connect(running).await;
    let reply = client.get(&format!("/topics/{topic}")).await;
    if reply.status == 404 { json!(0) } else { reply.ok()["events"].clone() }
}

#[tokio::test]
async fn stores_every_field_of_a_line() {
    let running = started(&[]).await;
    let mut subscriber = running.connect().await;
    subscriber.subscribe("t", "g", json!({})).await;
    let mut client = HttpClient::connect(&running).await;
    let lines = concat!(
        r#"{"id":"a","ts":5,"topic":"other","seq":99,"key":"k","headers":{"h":"v"},"#,
        r#""payload":{"b":1.0, "a":1},"caused_by":["x"],"tags":["y"],"sid":"s","more":[1]}"#,
        "\r\n\n  \n",
        r#"{"payload":null}"#,
        "\n",
        r#"{"id":"a","payload":2}"#,
    );
    let content_type = [("content-type", "Application/X-NDJSON; charset=utf-8")];
    let reply = client.ask("POST", "/publish/t", &content_type, lines).await;
    let expected = json!({"count": 3, "duplicates": 1, "first_seq": 1, "last_seq": 2});
    assert_eq!(reply.ok(), expected);
    assert_eq!(
        subscriber.event().await["event"],
        json!({
            "id": "a", "seq": 1, "ts": 5, "topic": "t", "key": "k", "headers": {"h": "v"},
            "payload": {"b": 1.0, "a": 1}, "caused_by": ["x"], "tags": ["y"], "sid": "s",
        })
    );
    let second = subscriber.event().await;
    assert_eq!((&second["event"]["seq"], &second["event"]["payload"]), (&json!(2), &Value::Null));
}

#[tokio::test]
async fn a_repeated_request_stores_only_duplicates() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let lines: String =
        (0..1000).map(|n| format!("{{\"id\":\"e{n}\",\"payload\":{n}}}\n")).collect();
    let expected = |duplicates| json!({"count": 1000, "duplicates": duplicates, "first_seq": 1, "last_seq": 1000});
    assert_eq!(client.ndjson("/publish/t", lines.clone()).await.ok(), expected(0));
    assert_eq!(client.ndjson("/publish/t", lines).await.ok(), expected(1000));
    let nothing = json!({"count": 0, "duplicates": 0, "first_seq": null, "last_seq": null});
    assert_eq!(client.ndjson("/publish/u", "").await.ok(), nothing);
    assert_eq!(client.ndjson("/publish/u", "\n \n").await.ok(), nothing);
    assert_eq!(events(&running, "u").await, 0);
}

#[tokio::test]
async fn a_bad_line_is_named_and_stores_nothing() {
    let running = started(&["gateway.max_frame_bytes=1024"]).await;
    let mut client = HttpClient::connect(&running).await;
    let large = format!("{{\"payload\":\"{}\"}}", "x".repeat(1023));
    for (bad, status, code, reason) in [
        ("{", 400, "bad_json", "line 5: not JSON: "),
        ("[]", 400, "bad_frame", "line 5: an event must be a JSON object with a payload"),
        ("{}", 400, "bad_frame", "line 5: payload is missing"),
        (r#"{"payload":1,"ts":-1}"#, 400, "bad_frame", "line 5: ts must be a whole number"),
        (r#"{"payload":1,"id":7}"#, 400, "bad_frame", "line 5: id must be a string"),
        (
            r#"{"payload":1,"key":""}"#,
            400,
            "bad_frame",
            "line 5: key: a key must be 1 to 256 bytes long",
        ),
        (r#"{"payload":1,"tags":[1]}"#, 400, "bad_frame", "line 5: tags[0] must be a string"),
        (&large, 413, "payload_too_large", "line 5: payload has 1025 bytes"),
    ] {
        let good = "{\"payload\":1}\n";
        let lines = format!("{good}\n{good}{good}{bad}\n{good}");
        let message = client.ndjson("/publish/t", lines).await.refused(status, code);
        assert!(message.starts_with(reason), "{message}");
    }
    assert_eq!(events(&running, "t").await, 0);
}

#[tokio::test]
async fn rejects_parameters_and_headers_of_single_events() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for name in ["key", "id", "ts"] {
        let reply = client.ndjson(&format!("/publish/t?{name}=1"), "{\"payload\":1}").await;
        let message = reply.refused(400, "bad_frame");
        assert!(
            message.starts_with(&format!("the parameter {name} applies to a single")),
            "{message}"
        );
    }
    let headers = [("content-type", "application/x-ndjson"), ("x-event-a", "b")];
    let reply = client.ask("POST", "/publish/t", &headers, "{\"payload\":1}").await;
    assert!(reply.refused(400, "bad_frame").contains("X-Event"));
}

#[tokio::test]
async fn limits_a_request_to_one_commit() {
    let running = started(&["limits.enabled=false"]).await;
    let mut client = HttpClient::connect(&running).await;
    let line = "{\"payload\":1}\n";
    let most = line.repeat(100_000);
    let message = client.ndjson("/publish/t", format!("{most}{line}")).await;
    let message = message.refused(413, "payload_too_large");
    assert_eq!(message, "line 100001: more than the 100000 events allowed in one request");
    // The metadata that the bus adds to each event counts as well.
    let long = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(250)).repeat(95_000);
    assert!(long.len() < 32 << 20);
    let message = client.ndjson("/publish/t", long).await.refused(413, "payload_too_large");
    assert!(message.ends_with("more than the 33554432 allowed in one request"), "{message}");
    let head = format!("{NDJSON}content-length: {}\r\n", (32 << 20) + 1);
    let (status, error) = Raw::post(&running, "/publish/t", &head, "").await.answer().await;
    assert_eq!((status, &error["code"]), (413, &json!("payload_too_large")), "{error}");
    assert_eq!(events(&running, "t").await, 0);
    assert_eq!(client.ndjson("/publish/t", most).await.ok()["last_seq"], 100_000);
}

#[tokio::test]
async fn an_aborted_request_stores_nothing_and_frees_its_memory() {
    let running = started(&[]).await;
    let lines = "{\"payload\":1}\n{\"payload\":2}\n";
    for _ in 0..8 {
        let head = format!("{NDJSON}content-length: 1000\r\n");
        drop(Raw::post_started(&running, "/publish/t", &head, lines).await);
    }
    let mut client = HttpClient::connect(&running).await;
    let reply = client.ndjson("/publish/t", "{\"payload\":3}").await;
    assert_eq!(reply.ok()["first_seq"], 1);
    assert_eq!(events(&running, "t").await, 1);
}

#[tokio::test]
async fn slow_small_requests_do_not_block_others() {
    let running = started(&[]).await;
    let line = "{\"payload\":1}\n";
    let mut pending = Vec::new();
    for _ in 0..20 {
        let head = format!("{NDJSON}content-length: {}\r\n", 2 * line.len());
        pending.push(Raw::post_started(&running, "/publish/t", &head, line).await);
    }
    let mut client = HttpClient::connect(&running).await;
    assert_eq!(client.ndjson("/publish/t", line).await.ok()["last_seq"], 1);
    for (index, other) in pending.iter_mut().enumerate() {
        other.send(line).await;
        assert_eq!(other.answer().await.1["last_seq"], 3 + 2 * index);
    }
}

#[tokio::test]
async fn a_failed_commit_stores_nothing() {
    let (running, faults) = started_with_faults(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    faults.fail_commits_before(1);
    let lines = "{\"payload\":1}\n{\"payload\":2}\n";
    client.ndjson("/publish/t", lines).await.refused(503, "storage_unavailable");
    assert_eq!(client.ndjson("/publish/t", lines).await.ok()["first_seq"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_do_not_interleave() {
    let running = started(&[]).await;
    let lines = "{\"payload\":1}\n".repeat(500);
    let publishing = || {
        let (address, lines) = (running.server.http(), lines.clone());
        tokio::spawn(async move {
            let mut client = HttpClient::connect_to(address).await;
            for _ in 0..10 {
                let stored = client.ndjson("/publish/t", lines.clone()).await.ok();
                let [first, last] =
                    ["first_seq", "last_seq"].map(|name| stored[name].as_u64().unwrap());
                assert_eq!(last - first, 499);
            }
        })
    };
    for done in [publishing(), publishing(), publishing()] {
        done.await.unwrap();
    }
    assert_eq!(events(&running, "t").await, 15_000);
}
