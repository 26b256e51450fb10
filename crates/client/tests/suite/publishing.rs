//! Publishing, and what can prevent it.

use std::time::Duration;

use futures_util::FutureExt;
use prombus_client::{Error, ErrorCode, Outgoing};
use serde_json::{Value, json};

use crate::harness::{client_builder, start, start_with_faults, within};
use crate::proxy::Proxy;

#[tokio::test]
async fn stores_an_event_with_its_attributes_and_an_id_once() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let event = || Outgoing::new(&json!({"load": 0.25})).unwrap().id("beat-7").key("node-3").ts(7);
    let first = client.publish("beats", event().header("unit", "percent")).await.unwrap();
    assert_eq!((first.id.to_string(), first.seq.0, first.duplicate), ("beat-7".into(), 1, false));
    let again = client.publish("beats", event()).await.unwrap();
    assert_eq!((again.seq.0, again.duplicate), (1, true));
    let made = client.publish("beats", "any text").await.unwrap();
    assert_eq!(made.id.as_uuid().unwrap().get_version_num(), 7);
    let stored = server.stored("beats").await;
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[0].headers.get("unit"), Some("percent"));
    assert_eq!((stored[0].ts.0, stored[1].payload.clone()), (7, json!("any text")));
}

#[tokio::test]
async fn splits_a_batch_into_frames_and_keeps_its_order() {
    let server = start(&["gateway.max_frame_bytes=65536"]).await;
    let client = server.builder().max_frame_bytes(65536).connect().await.unwrap();
    let texts: Vec<_> = (0..2500).map(|n| format!("{n}:{}", "x".repeat(n % 300))).collect();
    let published = client.publish_batch("t", &texts).await.unwrap();
    let seqs: Vec<_> = published.iter().map(|published| published.seq.0).collect();
    assert_eq!(seqs, (1..=2500).collect::<Vec<_>>());
    assert_eq!(server.payloads("t").await, texts.iter().map(|t| json!(t)).collect::<Vec<_>>());
    assert!(client.publish_batch("t", Vec::<Outgoing>::new()).await.unwrap().is_empty());
    let events = [Outgoing::new(&1).unwrap().id("a"), Outgoing::new(&2).unwrap().id("a")];
    let published = client.publish_batch("u", events).await.unwrap();
    assert!(!published[0].duplicate && published[1].duplicate);
}

#[tokio::test]
async fn rejects_invalid_and_oversized_events_before_sending() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let code = |error: Error| error.code().unwrap();
    assert_eq!(code(client.publish("No", &1).await.unwrap_err()), ErrorCode::BadTopic);
    let event = Outgoing::new(&1).unwrap().key("");
    assert_eq!(code(client.publish("t", event).await.unwrap_err()), ErrorCode::BadFrame);
    let large = "x".repeat(1 << 20);
    assert_eq!(code(client.publish("t", &large).await.unwrap_err()), ErrorCode::PayloadTooLarge);
    let batch = client.publish_batch("t", [&large]).await;
    assert_eq!(code(batch.unwrap_err()), ErrorCode::PayloadTooLarge);
    client.publish("t", &1).await.unwrap();
    assert_eq!(server.payloads("t").await, [1]);
}

#[tokio::test]
async fn waits_while_the_window_is_full() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    let client = client_builder(&proxy.ws()).window(4).connect().await.unwrap();
    proxy.hold(true);
    let mut receipts = Vec::new();
    for number in 0..4 {
        receipts.push(client.enqueue("t", &number).now_or_never().unwrap().unwrap());
    }
    let mut fifth = Box::pin(client.enqueue("t", &4));
    assert!((&mut fifth).now_or_never().is_none());
    // Not even when the server has stored the others, as long as its answers are withheld.
    server.until_stored("t", 4).await;
    assert!((&mut fifth).now_or_never().is_none());
    proxy.hold(false);
    receipts.push(within(fifth).await.unwrap().unwrap());
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(server.payloads("t").await, (0..5).map(Value::from).collect::<Vec<_>>());
}

#[tokio::test]
async fn times_out_without_an_answer() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    let builder = client_builder(&proxy.ws()).window(1).timeout(Duration::from_millis(30));
    let client = builder.connect().await.unwrap();
    proxy.hold(true);
    let late = client.enqueue("t", &1).await.unwrap();
    // The window stays full for the whole timeout.
    assert_eq!(client.publish("t", &2).await.unwrap_err(), Error::TimedOut);
    assert_eq!(late.await.unwrap_err(), Error::TimedOut);
    proxy.hold(false);
    // The late answer is not mistaken for that of the next request.
    let next = within(async {
        loop {
            match client.publish("t", Outgoing::new(&3).unwrap().id("three")).await {
                Ok(published) => return published,
                Err(error) => assert_eq!(error, Error::TimedOut),
            }
        }
    });
    let next = next.await.unwrap();
    assert_eq!((next.id.to_string(), next.seq.0), ("three".to_owned(), 2));
}

#[tokio::test]
async fn retries_while_storage_fails() {
    let (server, faults) = start_with_faults(&[]).await;
    let client = server.connect().await;
    faults.fail_commits_before(3);
    client.publish("t", &1).await.unwrap();
    // The event is stored, but the commit reports a failure.
    faults.fail_commits_after(1);
    let again = client.publish("t", &2).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(server.payloads("t").await, [1, 2]);
}

#[tokio::test]
async fn connects_in_the_background_once_the_server_is_there() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    proxy.close(true);
    let error = client_builder(&proxy.ws()).connect().await.unwrap_err();
    assert!(matches!(error, Error::NotReached(_)) && error.is_retryable(), "{error}");
    let client = client_builder(&proxy.ws()).connect_in_background().unwrap();
    let receipt = client.enqueue("t", &1).await.unwrap();
    proxy.close(false);
    within(receipt).await.unwrap().unwrap();
}
