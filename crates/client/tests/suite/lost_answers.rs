//! Publishing while connections are lost between request and answer.

use crate::harness::{client_builder, start};
use crate::proxy::Proxy;
use serde_json::Value;

/// Every connection delivers one answer; instead of the next one, it is cut. So each event but the
/// first is stored before its answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_each_event_once_after_a_thousand_lost_answers() {
    const LOST: usize = 1000;
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    proxy.cut_after_answers(1);
    let client = client_builder(&proxy.ws()).connect().await.unwrap();
    let mut duplicates = 0;
    for number in 0..=LOST {
        let published = client.publish("t", &number).await.unwrap();
        assert_eq!(published.seq.0, number as u64 + 1);
        duplicates += usize::from(published.duplicate);
    }
    assert!(proxy.cuts() >= LOST, "{} answers were lost", proxy.cuts());
    assert!(duplicates >= LOST, "{duplicates}");
    let stored = server.payloads("t").await;
    assert_eq!(stored, (0..=LOST).map(Value::from).collect::<Vec<_>>());
}

/// Pipelined events and batches, over connections that are cut anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_pipelined_events_once_and_in_order() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    proxy.cut_after_bytes(5000);
    let client = client_builder(&proxy.ws()).window(100).connect().await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..2000 {
        receipts.push(client.enqueue("t", &number).await.unwrap());
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert!(proxy.cuts() > 10, "{}", proxy.cuts());
    let expected: Vec<_> = (0..2000).map(Value::from).collect();
    assert_eq!(server.payloads("t").await, expected);
    // Enough for the answer to a full frame.
    proxy.cut_after_bytes(100_000);
    let batch: Vec<_> = (0..2000).collect();
    let published = client.publish_batch("b", &batch).await.unwrap();
    assert_eq!(published.len(), 2000);
    assert_eq!(server.payloads("b").await, expected);
}
