//! Rate limits and the headers that report them.

use std::time::Duration;

use serde_json::json;

use crate::gateway::running::started;
use crate::http::client::{HttpClient, Reply};

fn limits(connection: [u32; 2], topic: [u32; 2]) -> Vec<String> {
    let bucket = |name: &str, [capacity, refill]: [u32; 2]| {
        [
            format!("limits.{name}.capacity={capacity}"),
            format!("limits.{name}.refill_per_sec={refill}"),
        ]
    };
    let mut set = vec!["limits.enabled=true".to_owned()];
    set.extend(bucket("connection", connection));
    set.extend(bucket("topic", topic));
    set
}

async fn limited(connection: [u32; 2], topic: [u32; 2]) -> crate::gateway::running::Running {
    let set = limits(connection, topic);
    started(&set.iter().map(String::as_str).collect::<Vec<_>>()).await
}

fn rate_headers(reply: &Reply) -> [&str; 2] {
    ["ratelimit-policy", "ratelimit"].map(|name| reply.header(name).unwrap())
}

#[tokio::test(start_paused = true)]
async fn every_publish_reports_remaining_tokens() {
    let running = limited([3, 1], [1000, 100]).await;
    let mut client = HttpClient::connect(&running).await;
    let policy = r#""connection";q=3;w=3, "topic";q=1000;w=10"#;
    for left in [
        r#""connection";r=2;t=1, "topic";r=999;t=1"#,
        r#""connection";r=1;t=2, "topic";r=998;t=1"#,
        r#""connection";r=0;t=3, "topic";r=997;t=1"#,
    ] {
        let reply = client.post("/publish/t", "1").await;
        reply.ok();
        assert_eq!(rate_headers(&reply), [policy, left]);
        assert_eq!(reply.header("retry-after"), None);
    }
    let reply = client.post("/publish/t", "1").await;
    assert_eq!(reply.refused(429, "rate_limited"), "conn publish rate exceeded");
    let left = r#""connection";r=0;t=3, "topic";r=997;t=1"#;
    assert_eq!(rate_headers(&reply), [policy, left], "the topic's token is returned");
    assert_eq!(reply.header("retry-after"), Some("1"));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(client.post("/publish/t", "1").await.ok()["seq"], 4);
    client.post("/publish/t", "1").await.refused(429, "rate_limited");
}

#[tokio::test(start_paused = true)]
async fn connections_have_their_own_limit_and_share_that_of_the_topic() {
    let running = limited([2, 1], [3, 1]).await;
    let mut one = HttpClient::connect(&running).await;
    let mut other = HttpClient::connect(&running).await;
    one.post("/publish/t", "1").await.ok();
    one.post("/publish/t", "1").await.ok();
    other.post("/publish/t", "1").await.ok();
    let reply = other.post("/publish/t", "1").await;
    assert_eq!(reply.refused(429, "rate_limited"), "topic publish rate exceeded");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(
        rate_headers(&reply),
        [r#""connection";q=2;w=2, "topic";q=3;w=3"#, r#""connection";r=1;t=1, "topic";r=0;t=3"#]
    );
    other.post("/publish/u", "1").await.ok();
}

#[tokio::test(start_paused = true)]
async fn ndjson_waits_for_tokens() {
    let running = limited([2, 1], [1000, 1000]).await;
    let mut client = HttpClient::connect(&running).await;
    let start = tokio::time::Instant::now();
    let reply = client.ndjson("/publish/t", "{\"payload\":1}\n".repeat(7)).await;
    assert_eq!(reply.ok()["last_seq"], 7);
    // The paused clock advances only while the server waits.
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(reply.header("ratelimit").unwrap().starts_with(r#""connection";r=0;t=2"#));
}

#[tokio::test]
async fn rejected_publishes_take_no_tokens_and_other_responses_report_none() {
    let running = limited([1, 1], [1000, 1000]).await;
    let mut client = HttpClient::connect(&running).await;
    for _ in 0..3 {
        let reply = client.post("/publish/t", "nonsense").await;
        reply.refused(400, "bad_json");
        assert_eq!(reply.header("ratelimit"), None);
    }
    client.post("/publish/t", "1").await.ok();
    for path in ["/topics", "/topics/t", "/groups?topic=t", "/healthz"] {
        let reply = client.get(path).await;
        reply.ok();
        assert_eq!(reply.header("ratelimit"), None, "{path}");
    }
}

#[tokio::test]
async fn without_limits_there_are_no_headers() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let reply = client.post("/publish/t", "1").await;
    assert_eq!(reply.ok()["seq"], json!(1));
    assert_eq!((reply.header("ratelimit"), reply.header("ratelimit-policy")), (None, None));
}
