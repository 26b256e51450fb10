//! The stronger form: what comes of an event is published in the same commit.

use std::time::Duration;

use prombus_client::{HandlerError, Outgoing, Received, Start};
use serde_json::Value;

use crate::gated_handler::HeldUp;
use crate::harness::{Running, started, through, within};
use crate::proxy::Proxy;

const DAY: Duration = Duration::from_secs(86_400);

async fn until_done(running: &Running, count: u64) {
    within(async {
        running.until_stored("t", count).await;
        running.until_lag("t", 0).await;
    })
    .await
    .unwrap();
}

/// Connections end all the time, after any answer, and each input has exactly one output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_bad_network_there_is_one_output_for_each_input() {
    let running = started(&[]).await;
    let inputs: Vec<u64> = (0..1000).collect();
    running.connect().await.publish_batch("t", &inputs).await.unwrap();
    let proxy = Proxy::to(running.ws()).await;
    proxy.cut_after_bytes(8000);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let client = through(&proxy.ws()).connect().await.unwrap();
        let transforming = client.transform_exactly_once("t", "g").from(Start::Earliest);
        let handle = |event: Received<u64>| async move {
            let doubled = Outgoing::new(&(event.payload * 2))?.caused_by(&event.id);
            Ok(vec![("doubled", doubled), ("audit", Outgoing::new(&event.payload)?)])
        };
        // A network that is bad enough could make a dead letter of anything.
        transforming.concurrency(3).max_attempts(1000).handle(handle).await.unwrap();
        clients.push(client);
    }
    until_done(&running, 1000).await;
    assert!(proxy.cuts() > 10, "{}", proxy.cuts());
    for (topic, factor) in [("doubled", 2), ("audit", 1)] {
        let mut outputs = running.payloads(topic).await;
        outputs.sort_by_key(Value::as_u64);
        let expected: Vec<_> = inputs.iter().map(|input| Value::from(input * factor)).collect();
        assert_eq!(outputs, expected, "{topic}");
    }
}

#[tokio::test]
async fn what_was_marked_meanwhile_is_acknowledged_and_nothing_published() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let other = running.connect().await;
    let handle = move |event: Received<u64>| {
        let other = other.clone();
        async move {
            if event.payload == 1 {
                other.mark("t", "g", std::slice::from_ref(&event.id), DAY).await?;
            }
            Ok(vec![("u", Outgoing::new(&event.payload)?)])
        }
    };
    let transforming = client.transform_exactly_once("t", "g").from(Start::Earliest).ttl(DAY);
    transforming.handle(handle).await.unwrap();
    client.publish_batch("t", &[1, 2]).await.unwrap();
    until_done(&running, 2).await;
    assert_eq!(running.payloads("u").await, [2]);
}

/// Somebody else has the event by then.
#[tokio::test]
async fn what_comes_without_the_lease_is_dropped() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    let slow = through(&proxy.ws()).connect().await.unwrap();
    let held_up = HeldUp::new();
    let handle = {
        let held_up = held_up.clone();
        move |event: Received<u64>| {
            let held = held_up.clone();
            async move {
                held.handle(&event).await;
                Ok(vec![("u", Outgoing::new("slow")?)])
            }
        }
    };
    let subscription = slow.transform_exactly_once("t", "g").handle(handle).await.unwrap();
    let quick = running.connect().await;
    quick.publish("t", &1).await.unwrap();
    held_up.begun.when(1).await;
    proxy.close(true);
    proxy.cut();
    let handle = |_: Received<u64>| async { Ok(vec![("u", Outgoing::new("quick")?)]) };
    quick.transform_exactly_once("t", "g").handle(handle).await.unwrap();
    until_done(&running, 1).await;
    proxy.close(false);
    held_up.let_one_end();
    subscription.stop().await.unwrap();
    assert_eq!(running.payloads("u").await, ["quick"]);
}

#[tokio::test]
async fn what_cannot_be_published_is_a_failure() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let handle = |event: Received<u64>| async move {
        match event.payload {
            0 => Err(HandlerError::new("zero")),
            1 => Ok(vec![("u".to_owned(), Outgoing::new(&"x".repeat(2 << 20))?)]),
            2 => Ok(vec![("U".to_owned(), Outgoing::new(&1)?)]),
            3 => Ok(vec![("u".to_owned(), Outgoing::new(&1)?.key(""))]),
            _ => Ok(vec![]),
        }
    };
    let transforming = client.transform_exactly_once("t", "g").max_attempts(1);
    transforming.handle(handle).await.unwrap();
    client.publish_batch("t", &[0, 1, 2, 3, 4]).await.unwrap();
    until_done(&running, 5).await;
    let letters = running.payloads("dlq.t").await;
    let reasons: Vec<_> = letters.iter().map(|letter| letter["err"].as_str().unwrap()).collect();
    let has = |words: &str| reasons.iter().any(|reason| reason.contains(words));
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(has("zero") && has("a frame of") && has("bad_topic") && has("key"), "{reasons:?}");
}
