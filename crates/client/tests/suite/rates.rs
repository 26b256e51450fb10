//! Limits of rate: waited out, or said.

use std::time::Duration;

use prombus_client::{ErrorCode, EventId, Received, Start};
use serde_json::Value;

use crate::harness::{Ledger, started};

fn numbers(count: u64) -> Vec<Value> {
    (0..count).map(Value::from).collect()
}

async fn all_are_stored(limits: &[&str]) {
    let running = started(limits).await;
    let client = running.connect().await;
    let mut receipts = Vec::new();
    for number in 0..60 {
        receipts.push(client.enqueue("t", &number).await.unwrap());
    }
    for receipt in receipts {
        assert!(!receipt.await.unwrap().duplicate);
    }
    let mut stored = running.payloads("t").await;
    stored.sort_by_key(Value::as_u64);
    assert_eq!(stored, numbers(60));
}

#[tokio::test]
async fn a_connection_that_is_too_fast_is_slowed_down() {
    let limits = ["limits.connection.capacity=5", "limits.connection.refill_per_sec=100"];
    all_are_stored(&[&limits[..], &["limits.enabled=true"]].concat()).await;
}

#[tokio::test]
async fn a_topic_that_is_too_fast_is_slowed_down() {
    let limits = ["limits.topic.capacity=5", "limits.topic.refill_per_sec=100"];
    all_are_stored(&[&limits[..], &["limits.enabled=true"]].concat()).await;
}

#[tokio::test]
async fn who_does_not_want_to_wait_is_told_how_long_it_would_be() {
    let set = ["limits.enabled=true", "limits.topic.capacity=1", "limits.topic.refill_per_sec=1"];
    let running = started(&set).await;
    let client = running.builder().wait_for_rate(false).connect().await.unwrap();
    client.publish("t", &1).await.unwrap();
    let error = client.publish("t", &2).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::RateLimited));
    assert!(error.is_retryable() && error.retry_after().is_some(), "{error}");
}

#[tokio::test]
async fn a_batch_above_the_limit_goes_in_smaller_frames() {
    let limits = ["limits.connection.capacity=16", "limits.connection.refill_per_sec=200"];
    let running = started(&[&limits[..], &["limits.enabled=true"]].concat()).await;
    let client = running.connect().await;
    let published = client.publish_batch("t", &numbers(100)).await.unwrap();
    assert_eq!(published.len(), 100);
    assert_eq!(running.payloads("t").await, numbers(100));
}

#[tokio::test]
async fn what_goes_together_is_stored_together_or_not_at_all() {
    let limits = ["limits.connection.capacity=16", "limits.connection.refill_per_sec=200"];
    let running = started(&[&limits[..], &["limits.enabled=true"]].concat()).await;
    let client = running.connect().await;
    let error = client.publish_together("t", &numbers(100)).await.unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Some(ErrorCode::RateLimited), None));
    for _ in 0..3 {
        assert_eq!(client.publish_together("t", &numbers(10)).await.unwrap().len(), 10);
    }
    let stored: Vec<_> = std::iter::repeat_n(numbers(10), 3).flatten().collect();
    assert_eq!(running.payloads("t").await, stored);
    assert!(client.publish_together("t", &numbers(0)).await.unwrap().is_empty());
    let large = vec!["x".repeat(600 << 10); 2];
    let error = client.publish_together("t", &large).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::PayloadTooLarge));
}

#[tokio::test]
async fn marks_above_the_limit_go_in_smaller_frames() {
    let limits = ["limits.connection.capacity=16", "limits.connection.refill_per_sec=200"];
    let running = started(&[&limits[..], &["limits.enabled=true"]].concat()).await;
    let client = running.connect().await;
    let ids: Vec<_> =
        (0..100).map(|number| EventId::new(&format!("event-{number}")).unwrap()).collect();
    client.mark("t", "g", &ids, Duration::from_secs(60)).await.unwrap();
    assert_eq!(client.seen("t", "g", &ids).await.unwrap(), ids);
}

/// Marks take tokens where they are not of an event on lease, and so do events of a handler.
#[tokio::test]
async fn what_a_handler_publishes_waits_for_its_tokens() {
    let limits = ["limits.connection.capacity=4", "limits.connection.refill_per_sec=100"];
    let running = started(&[&limits[..], &["limits.enabled=true"]].concat()).await;
    let client = running.connect().await;
    client.publish_batch("t", &numbers(20)).await.unwrap();
    let handle = |event: Received<u64>| async move {
        Ok(vec![("u", prombus_client::Outgoing::new(&event.payload)?)])
    };
    let transforming = client.transform_exactly_once("t", "g").from(Start::Earliest);
    transforming.handle(handle).await.unwrap();
    let seen = Ledger::new();
    let ledger = seen.clone();
    let other = running.connect().await;
    let handle = move |event: Received<u64>| {
        ledger.write(event.payload);
        async { Ok(()) }
    };
    other.subscribe("u", "g").from(Start::Earliest).handle(handle).await.unwrap();
    let mut all = seen.when(20).await;
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>());
}
