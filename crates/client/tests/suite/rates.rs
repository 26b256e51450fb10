//! Rate limits.

use std::time::Duration;

use prombus_client::{ErrorCode, EventId, Received, Start};
use serde_json::Value;

use crate::harness::{Ledger, start};

fn numbers(count: u64) -> Vec<Value> {
    (0..count).map(Value::from).collect()
}

async fn stores_all_events_under(limits: &[&str]) {
    let server = start(limits).await;
    let client = server.connect().await;
    let mut receipts = Vec::new();
    for number in 0..60 {
        receipts.push(client.enqueue("t", &number).await.unwrap());
    }
    for receipt in receipts {
        assert!(!receipt.await.unwrap().duplicate);
    }
    let mut stored = server.payloads("t").await;
    stored.sort_by_key(Value::as_u64);
    assert_eq!(stored, numbers(60));
}

#[tokio::test]
async fn slows_down_for_the_connection_limit() {
    let limits = ["limits.connection.capacity=5", "limits.connection.refill_per_sec=100"];
    stores_all_events_under(&[&limits[..], &["limits.enabled=true"]].concat()).await;
}

#[tokio::test]
async fn slows_down_for_the_topic_limit() {
    let limits = ["limits.topic.capacity=5", "limits.topic.refill_per_sec=100"];
    stores_all_events_under(&[&limits[..], &["limits.enabled=true"]].concat()).await;
}

#[tokio::test]
async fn reports_the_wait_if_it_is_not_to_wait() {
    let set = ["limits.enabled=true", "limits.topic.capacity=1", "limits.topic.refill_per_sec=1"];
    let server = start(&set).await;
    let client = server.builder().wait_for_rate(false).connect().await.unwrap();
    client.publish("t", &1).await.unwrap();
    let error = client.publish("t", &2).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::RateLimited));
    assert!(error.is_retryable() && error.retry_after().is_some(), "{error}");
}

#[tokio::test]
async fn splits_a_batch_that_exceeds_the_limit() {
    let limits = ["limits.connection.capacity=16", "limits.connection.refill_per_sec=200"];
    let server = start(&[&limits[..], &["limits.enabled=true"]].concat()).await;
    let client = server.connect().await;
    let published = client.publish_batch("t", &numbers(100)).await.unwrap();
    assert_eq!(published.len(), 100);
    assert_eq!(server.payloads("t").await, numbers(100));
}

#[tokio::test]
async fn publish_together_stores_all_events_or_none() {
    let limits = ["limits.connection.capacity=16", "limits.connection.refill_per_sec=200"];
    let server = start(&[&limits[..], &["limits.enabled=true"]].concat()).await;
    let client = server.connect().await;
    let error = client.publish_together("t", &numbers(100)).await.unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Some(ErrorCode::RateLimited), None));
    for _ in 0..3 {
        assert_eq!(client.publish_together("t", &numbers(10)).await.unwrap().len(), 10);
    }
    let stored: Vec<_> = std::iter::repeat_n(numbers(10), 3).flatten().collect();
    assert_eq!(server.payloads("t").await, stored);
    assert!(client.publish_together("t", &numbers(0)).await.unwrap().is_empty());
    let large = vec!["x".repeat(600 << 10); 2];
    let error = client.publish_together("t", &large).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::PayloadTooLarge));
}

#[tokio::test]
async fn splits_marks_that_exceed_the_limit() {
    let limits = ["limits.connection.capacity=16", "limits.connection.refill_per_sec=200"];
    let server = start(&[&limits[..], &["limits.enabled=true"]].concat()).await;
    let client = server.connect().await;
    let ids: Vec<_> =
        (0..100).map(|number| EventId::new(&format!("event-{number}")).unwrap()).collect();
    client.mark("t", "g", &ids, Duration::from_secs(60)).await.unwrap();
    assert_eq!(client.seen("t", "g", &ids).await.unwrap(), ids);
}

/// A handler's output takes tokens.
#[tokio::test]
async fn the_output_of_a_handler_waits_for_tokens() {
    let limits = ["limits.connection.capacity=4", "limits.connection.refill_per_sec=100"];
    let server = start(&[&limits[..], &["limits.enabled=true"]].concat()).await;
    let client = server.connect().await;
    client.publish_batch("t", &numbers(20)).await.unwrap();
    let handle = |event: Received<u64>| async move {
        Ok(vec![("u", prombus_client::Outgoing::new(&event.payload)?)])
    };
    let builder = client.transform_exactly_once("t", "g").from(Start::Earliest);
    builder.handle(handle).await.unwrap();
    let seen = Ledger::new();
    let ledger = seen.clone();
    let other = server.connect().await;
    let handle = move |event: Received<u64>| {
        ledger.write(event.payload);
        async { Ok(()) }
    };
    other.subscribe("u", "g").from(Start::Earliest).handle(handle).await.unwrap();
    let mut all = seen.wait_for_len(20).await;
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>());
}
