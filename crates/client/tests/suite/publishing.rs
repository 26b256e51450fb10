//! Publishing, and what stands in its way.

use std::time::Duration;

use futures_util::FutureExt;
use prombus_client::{Error, ErrorCode, Outgoing};
use serde_json::{Value, json};

use crate::harness::{started, started_with_faults, through, within};
use crate::proxy::Proxy;

#[tokio::test]
async fn an_event_is_stored_with_all_that_it_has_and_an_id_once() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let event = || Outgoing::new(&json!({"load": 0.25})).unwrap().id("beat-7").key("node-3").ts(7);
    let first = client.publish("beats", event().header("unit", "percent")).await.unwrap();
    assert_eq!((first.id.to_string(), first.seq.0, first.duplicate), ("beat-7".into(), 1, false));
    let again = client.publish("beats", event()).await.unwrap();
    assert_eq!((again.seq.0, again.duplicate), (1, true));
    let made = client.publish("beats", "any text").await.unwrap();
    assert_eq!(made.id.as_uuid().unwrap().get_version_num(), 7);
    let stored = running.stored("beats").await;
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[0].headers.get("unit"), Some("percent"));
    assert_eq!((stored[0].ts.0, stored[1].payload.clone()), (7, json!("any text")));
}

#[tokio::test]
async fn a_batch_is_cut_into_frames_and_keeps_its_order() {
    let running = started(&["gateway.max_frame_bytes=65536"]).await;
    let client = running.builder().max_frame_bytes(65536).connect().await.unwrap();
    let texts: Vec<_> = (0..2500).map(|n| format!("{n}:{}", "x".repeat(n % 300))).collect();
    let published = client.publish_batch("t", &texts).await.unwrap();
    let seqs: Vec<_> = published.iter().map(|published| published.seq.0).collect();
    assert_eq!(seqs, (1..=2500).collect::<Vec<_>>());
    assert_eq!(running.payloads("t").await, texts.iter().map(|t| json!(t)).collect::<Vec<_>>());
    assert!(client.publish_batch("t", Vec::<Outgoing>::new()).await.unwrap().is_empty());
    let events = [Outgoing::new(&1).unwrap().id("a"), Outgoing::new(&2).unwrap().id("a")];
    let published = client.publish_batch("u", events).await.unwrap();
    assert!(!published[0].duplicate && published[1].duplicate);
}

#[tokio::test]
async fn what_is_wrong_or_too_large_is_refused_before_it_is_sent() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let code = |error: Error| error.code().unwrap();
    assert_eq!(code(client.publish("No", &1).await.unwrap_err()), ErrorCode::BadTopic);
    let event = Outgoing::new(&1).unwrap().key("");
    assert_eq!(code(client.publish("t", event).await.unwrap_err()), ErrorCode::BadFrame);
    let large = "x".repeat(1 << 20);
    assert_eq!(code(client.publish("t", &large).await.unwrap_err()), ErrorCode::PayloadTooLarge);
    let batch = client.publish_batch("t", [&large]).await;
    assert_eq!(code(batch.unwrap_err()), ErrorCode::PayloadTooLarge);
    client.publish("t", &1).await.unwrap();
    assert_eq!(running.payloads("t").await, [1]);
}

#[tokio::test]
async fn where_the_window_is_full_publishing_waits() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    let client = through(&proxy.ws()).window(4).connect().await.unwrap();
    proxy.hold(true);
    let mut receipts = Vec::new();
    for number in 0..4 {
        receipts.push(client.enqueue("t", &number).now_or_never().unwrap().unwrap());
    }
    let mut fifth = Box::pin(client.enqueue("t", &4));
    assert!((&mut fifth).now_or_never().is_none());
    // Not even when the server has stored the others, as long as that is not known here.
    running.until_stored("t", 4).await;
    assert!((&mut fifth).now_or_never().is_none());
    proxy.hold(false);
    receipts.push(within(fifth).await.unwrap().unwrap());
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(running.payloads("t").await, (0..5).map(Value::from).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_waited_for_no_longer() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    let builder = through(&proxy.ws()).window(1).timeout(Duration::from_millis(30));
    let client = builder.connect().await.unwrap();
    proxy.hold(true);
    let late = client.enqueue("t", &1).await.unwrap();
    // There is no room for it in all that time.
    assert_eq!(client.publish("t", &2).await.unwrap_err(), Error::TimedOut);
    assert_eq!(late.await.unwrap_err(), Error::TimedOut);
    proxy.hold(false);
    // The late answer is not taken for that of the next.
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
async fn storage_that_fails_for_a_while_is_tried_again() {
    let (running, faults) = started_with_faults(&[]).await;
    let client = running.connect().await;
    faults.fail_commits_before(3);
    client.publish("t", &1).await.unwrap();
    // Stored, but the server cannot know.
    faults.fail_commits_after(1);
    let again = client.publish("t", &2).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(running.payloads("t").await, [1, 2]);
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    proxy.close(true);
    let error = through(&proxy.ws()).connect().await.unwrap_err();
    assert!(matches!(error, Error::NotReached(_)) && error.is_retryable(), "{error}");
    let client = through(&proxy.ws()).connect_in_background().unwrap();
    let receipt = client.enqueue("t", &1).await.unwrap();
    proxy.close(false);
    within(receipt).await.unwrap().unwrap();
}
