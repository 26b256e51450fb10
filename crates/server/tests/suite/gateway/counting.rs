//! Metrics of connections and bytes.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use crate::gateway::running::{Running, started};

/// Only a connection that hangs takes this long to end.
const HANG: Duration = Duration::from_secs(20);

impl Running {
    async fn metric(&self, series: &str) -> u64 {
        let text = self.server.bus().metrics_text().await.unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in {text}")).parse().unwrap()
    }

    async fn until_connections_are(&self, count: u64) {
        let counted = async {
            while self.metric(r#"prombus_connections{transport="ws"}"#).await != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(HANG, counted).await.unwrap();
    }
}

#[tokio::test]
async fn counts_open_connections() {
    let running = started(&[]).await;
    running.until_connections_are(0).await;
    let mut first = running.connect().await;
    let second = running.connect().await;
    first.assert_lives().await;
    running.until_connections_are(2).await;
    drop(second);
    running.until_connections_are(1).await;
    first.socket.close(None).await.unwrap();
    running.until_connections_are(0).await;
}

/// A short client frame has a header of two bytes and a mask of four, a server frame no mask; longer
/// frames have two more bytes of length.
#[tokio::test]
async fn counts_the_bytes_of_frames() {
    let running = started(&[]).await;
    let mut client = running.connect().await;
    let short = json!({"op": "PUBLISH", "topic": "t", "payload": 1});
    let long = json!({"op": "PUBLISH", "topic": "t", "payload": "x".repeat(1000)});
    let mut sent = client.ask(short.clone()).await.len() + 2;
    sent += client.ask(long.clone()).await.len() + 2;
    let received = short.to_string().len() + 6 + long.to_string().len() + 8;
    let metric = |name: &str| format!(r#"prombus_{name}_bytes_total{{transport="ws"}}"#);
    assert_eq!(running.metric(&metric("received")).await, received as u64);
    assert_eq!(running.metric(&metric("sent")).await, sent as u64);
    assert_eq!(running.metric(r#"prombus_events_published_total{topic="t"}"#).await, 2);
}

#[tokio::test]
async fn counts_deliveries_acks_and_refusals() {
    let running = started(&["limits.enabled=true", "limits.connection.capacity=3"]).await;
    let mut client = running.connect().await;
    client.subscribe("t", "g", json!({})).await;
    client.publish("t", json!(1)).await;
    let event = client.event().await;
    client.ack(&event).await;
    let events: Vec<_> = (0..4).map(|n| json!({"payload": n})).collect();
    let refused = client.ask(json!({"op": "PUBLISH", "topic": "t", "events": events})).await;
    assert!(refused.contains("rate_limited"), "{refused}");
    for (series, value) in [
        (r#"prombus_events_delivered_total{group="g",topic="t"}"#, 1),
        (r#"prombus_events_acked_total{group="g",topic="t"}"#, 1),
        (r#"prombus_lag_events{group="g",topic="t"}"#, 0),
        (r#"prombus_events_rate_limited_total{scope="connection"}"#, 4),
        ("prombus_publish_to_deliver_seconds_count", 1),
        ("prombus_deliver_to_ack_seconds_count", 1),
    ] {
        assert_eq!(running.metric(series).await, value, "{series}");
    }
}
