//! `PUT /topics/{topic}`: settings are validated, take effect immediately and survive a restart.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::gateway::running::{Running, started, started_over, started_with_faults};
use crate::http::client::HttpClient;
use crate::store::Store;

#[tokio::test]
async fn put_replaces_all_own_settings() {
    let set = [
        "limits.enabled=true",
        r#"topics."t".retention_ms=5000"#,
        r#"topics."t".limit.capacity=70"#,
    ];
    let running = started(&set).await;
    let mut client = HttpClient::connect(&running).await;
    let configured = json!({
        "durability": "fsync", "retention_ms": 5000, "retention_bytes": null,
        "limit": {"capacity": 70, "refill_per_sec": 1000},
    });
    let topic = client.get("/topics/t").await.ok();
    assert_eq!((&topic["settings"], &topic["own"]), (&configured, &json!({})));
    let own = json!({
        "durability": "buffered", "retention_ms": 1, "retention_bytes": 9_223_372_036_854_775_807_u64,
        "limit": {"capacity": 1, "refill_per_sec": 1_000_000_000},
    });
    let topic = client.put("/topics/t", own.to_string()).await.ok();
    assert_eq!((&topic["settings"], &topic["own"]), (&own, &own));
    assert_eq!(client.get("/topics/t").await.ok(), topic, "PUT returns what GET does");
    let some = json!({"durability": null, "retention_bytes": 7});
    let topic = client.put("/topics/t", some.to_string()).await.ok();
    assert_eq!(topic["own"], json!({"retention_bytes": 7}));
    let mut expected = configured.clone();
    expected["retention_bytes"] = json!(7);
    assert_eq!(topic["settings"], expected);
    let topic = client.put("/topics/t", " {} ").await.ok();
    assert_eq!((&topic["settings"], &topic["own"]), (&configured, &json!({})));
}

#[tokio::test]
async fn names_the_invalid_field() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for (body, code, reason) in [
        ("", "bad_json", "the body: not JSON: "),
        ("{", "bad_json", "the body: not JSON: "),
        ("retention_ms=1", "bad_json", "the body: not JSON: "),
        ("[]", "bad_frame", "the body must be a JSON object"),
        (r#"{"retention":1}"#, "bad_frame", "retention is not a setting; expected durability"),
        (r#"{"durability":"sync"}"#, "bad_frame", "durability must be fsync or buffered"),
        (r#"{"durability":"memory"}"#, "bad_frame", "durability must be fsync or buffered"),
        (r#"{"durability":1}"#, "bad_frame", "durability must be fsync or buffered"),
        (r#"{"retention_ms":0}"#, "bad_frame", "retention_ms must be a whole number, 1 or more"),
        (r#"{"retention_ms":1.5}"#, "bad_frame", "retention_ms must be a whole number, 1 or more"),
        (r#"{"retention_ms":"1"}"#, "bad_frame", "retention_ms must be"),
        (r#"{"retention_bytes":-1}"#, "bad_frame", "retention_bytes must be a whole number, 1 or"),
        (r#"{"retention_bytes":9223372036854775808}"#, "bad_frame", "retention_bytes must be"),
        (r#"{"limit":5}"#, "bad_frame", "limit must be an object with capacity and refill"),
        (r#"{"limit":{}}"#, "bad_frame", "limit.capacity is missing"),
        (r#"{"limit":{"capacity":1}}"#, "bad_frame", "limit.refill_per_sec is missing"),
        (
            r#"{"limit":{"capacity":0,"refill_per_sec":1}}"#,
            "bad_frame",
            "limit.capacity must be a whole number, 1 to 1000000000",
        ),
        (
            r#"{"limit":{"capacity":1,"refill_per_sec":1000000001}}"#,
            "bad_frame",
            "limit.refill_per_sec must be a whole number, 1 to 1000000000",
        ),
        (
            r#"{"limit":{"capacity":1,"refill_per_sec":1,"burst":1}}"#,
            "bad_frame",
            "limit.burst is not a setting; expected capacity, refill_per_sec",
        ),
    ] {
        let message = client.put("/topics/t", body.to_owned()).await.refused(400, code);
        assert!(message.starts_with(reason), "{body}: {message}");
    }
    client.put("/topics/t?x=1", "{}").await.refused(400, "bad_frame");
    client.put("/topics/T", "{}").await.refused(400, "bad_topic");
    client.put("/topics/t", " ".repeat(65_537)).await.refused(413, "payload_too_large");
    client.get("/topics/t").await.refused(404, "unknown_topic");
}

#[tokio::test(start_paused = true)]
async fn a_limit_applies_immediately_to_existing_connections() {
    let set = ["limits.enabled=true", "limits.connection.capacity=1000"];
    let running = started(&set).await;
    let mut client = HttpClient::connect(&running).await;
    for _ in 0..10 {
        client.post("/publish/t", "1").await.ok();
    }
    let limit = json!({"limit": {"capacity": 2, "refill_per_sec": 1}}).to_string();
    client.put("/topics/t", limit).await.ok();
    let reply = client.post("/publish/t", "1").await;
    reply.ok();
    assert!(reply.header("ratelimit-policy").unwrap().ends_with(r#""topic";q=2;w=2"#));
    client.post("/publish/t", "1").await.ok();
    let message = client.post("/publish/t", "1").await.refused(429, "rate_limited");
    assert_eq!(message, "topic publish rate exceeded");
    client.post("/publish/u", "1").await.ok();
    client.put("/topics/t", "{}").await.ok();
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    for _ in 0..100 {
        client.post("/publish/t", "1").await.ok();
    }
}

#[tokio::test]
async fn retention_applies_immediately() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    for _ in 0..10 {
        client.post("/publish/t", "1").await.ok();
    }
    let topic = client.put("/topics/t", r#"{"retention_bytes":1}"#).await.ok();
    assert!(topic["events"].as_u64().unwrap() < 10, "{topic}");
    assert_eq!(client.post("/publish/t", "1").await.ok()["seq"], 11);
}

async fn limited_over(store: &Store) -> Running {
    started_over(store.open().await, &["limits.enabled=true"]).await
}

#[tokio::test]
async fn settings_survive_a_restart() {
    let store = Store::new();
    let running = limited_over(&store).await;
    let mut client = HttpClient::connect(&running).await;
    let own: Value = json!({
        "durability": "buffered", "retention_ms": 100_000, "retention_bytes": 1_000_000,
        "limit": {"capacity": 1, "refill_per_sec": 1},
    });
    client.put("/topics/t", own.to_string()).await.ok();
    client.put("/topics/undone", own.to_string()).await.ok();
    client.put("/topics/undone", "{}").await.ok();
    drop(client);
    running.server.stop().await.unwrap();
    let running = limited_over(&store).await;
    let mut client = HttpClient::connect(&running).await;
    let topic = client.get("/topics/t").await.ok();
    assert_eq!((&topic["settings"], &topic["own"]), (&own, &own));
    assert_eq!(client.get("/topics/undone").await.ok()["own"], json!({}));
    let reply = client.post("/publish/t", "1").await;
    reply.ok();
    assert!(reply.header("ratelimit-policy").unwrap().ends_with(r#""topic";q=1;w=1"#));
    drop(client);
    running.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_consistent_settings() {
    let (running, faults) = started_with_faults(&[]).await;
    faults.shut_gate();
    let mut stream = TcpStream::connect(running.server.http()).await.unwrap();
    let body = "{\"retention_ms\":1000}";
    let head =
        format!("PUT /topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}", body.len());
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    faults.until_waiting(1).await;
    drop(stream);
    // Long enough for the server to notice.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    faults.open_gate();
    let mut client = HttpClient::connect(&running).await;
    // Settings are applied one after another, so this request waits for the first.
    client.put("/topics/u", "{}").await.ok();
    assert_eq!(client.get("/topics/t").await.ok()["settings"]["retention_ms"], 1000);
}
