//! `GET /metrics`.

use std::collections::HashMap;

use crate::gateway::running::started;
use crate::http::client::HttpClient;

pub(crate) async fn scrape(client: &mut HttpClient) -> HashMap<String, f64> {
    let reply = client.get("/metrics").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let text = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(reply.header("content-type"), Some(text));
    let text = std::str::from_utf8(&reply.body).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.map(|line| line.rsplit_once(' ').unwrap());
    samples.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
}

#[tokio::test]
async fn counts_http_traffic() {
    let running = started(&[]).await;
    let mut client = HttpClient::connect(&running).await;
    let before = scrape(&mut client).await;
    assert_eq!(before["prombus_connections{transport=\"http\"}"], 1.0);
    client.post("/publish/t?id=a", "[1,2,3]").await.ok();
    client.post("/publish/t?id=a", "[1,2,3]").await.ok();
    let exported = client.get("/export?topic=t").await.body.len();
    let other = HttpClient::connect(&running).await;
    let mut third = HttpClient::connect(&running).await;
    third.get("/healthz").await.ok();
    drop(other);
    let after = scrape(&mut client).await;
    let grew = |series: &str| after[series] - before.get(series).copied().unwrap_or(0.0);
    assert_eq!(grew("prombus_events_published_total{topic=\"t\"}"), 1.0);
    assert_eq!(grew("prombus_duplicates_total{topic=\"t\"}"), 1.0);
    assert_eq!(grew("prombus_received_bytes_total{transport=\"http\"}"), 14.0);
    assert!(grew("prombus_sent_bytes_total{transport=\"http\"}") > exported as f64);
    assert!(grew("prombus_connections{transport=\"http\"}") >= 1.0);
    assert_eq!(after["prombus_connections{transport=\"ws\"}"], 0.0);
}

#[tokio::test]
async fn requires_the_admin_scope() {
    let tokens = r#"auth.tokens=[{token="boss-token-123456", scopes=["admin"]}, {token="reader-token-1234", scopes=["subscribe:**"]}]"#;
    let running = started(&[tokens]).await;
    let connect = || HttpClient::connect(&running);
    connect().await.get("/metrics").await.refused(401, "unauthorized");
    let mut reader = connect().await.with_token("reader-token-1234");
    reader.get("/metrics").await.refused(403, "forbidden");
    let mut boss = connect().await.with_token("boss-token-123456");
    assert_eq!(boss.get("/metrics").await.status, 200);
    boss.get("/metrics?x=1").await.refused(400, "bad_frame");
}
