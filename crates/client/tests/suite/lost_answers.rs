//! A publisher that loses its connection between its request and the answer.

use crate::harness::{started, through};
use crate::proxy::Proxy;
use serde_json::Value;

/// Every connection passes one answer on; the server's next one is swallowed, and the connection
/// cut. So each event but the first is stored when its answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_times_each_event_is_stored_once() {
    const LOST: usize = 1000;
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    proxy.cut_after_answers(1);
    let client = through(&proxy.ws()).connect().await.unwrap();
    let mut duplicates = 0;
    for number in 0..=LOST {
        let published = client.publish("t", &number).await.unwrap();
        assert_eq!(published.seq.0, number as u64 + 1);
        duplicates += usize::from(published.duplicate);
    }
    assert!(proxy.cuts() >= LOST, "{} answers were lost", proxy.cuts());
    // Told of what was stored the first time.
    assert!(duplicates >= LOST, "{duplicates}");
    let stored = running.payloads("t").await;
    assert_eq!(stored, (0..=LOST).map(Value::from).collect::<Vec<_>>());
}

/// Many on their way at a time, connections that end anywhere, and batches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_a_time_keep_their_order_and_are_stored_once() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    proxy.cut_after_bytes(5000);
    let client = through(&proxy.ws()).window(100).connect().await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..2000 {
        receipts.push(client.enqueue("t", &number).await.unwrap());
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert!(proxy.cuts() > 10, "{}", proxy.cuts());
    let expected: Vec<_> = (0..2000).map(Value::from).collect();
    assert_eq!(running.payloads("t").await, expected);
    // An answer to a whole frame of these is more than a connection passes on.
    proxy.cut_after_bytes(100_000);
    let batch: Vec<_> = (0..2000).collect();
    let published = client.publish_batch("b", &batch).await.unwrap();
    assert_eq!(published.len(), 2000);
    assert_eq!(running.payloads("b").await, expected);
}
