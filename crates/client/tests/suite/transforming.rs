//! Subscriptions that publish their output in the same commit.

use std::time::Duration;

use prombus_client::{HandlerError, Outgoing, Received, Start};
use serde_json::Value;

use crate::gated_handler::GatedHandler;
use crate::harness::{TestServer, client_builder, start, within};
use crate::proxy::Proxy;

const DAY: Duration = Duration::from_secs(86_400);

async fn until_done(server: &TestServer, count: u64) {
    within(async {
        server.until_stored("t", count).await;
        server.until_lag("t", 0).await;
    })
    .await
    .unwrap();
}

/// Connections are cut again and again, after any answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishes_one_output_per_input_over_a_bad_network() {
    let server = start(&[]).await;
    let inputs: Vec<u64> = (0..1000).collect();
    server.connect().await.publish_batch("t", &inputs).await.unwrap();
    let proxy = Proxy::to(server.ws()).await;
    proxy.cut_after_bytes(8000);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let client = client_builder(&proxy.ws()).connect().await.unwrap();
        let builder = client.transform_exactly_once("t", "g").from(Start::Earliest);
        let handle = |event: Received<u64>| async move {
            let doubled = Outgoing::new(&(event.payload * 2))?.caused_by(&event.id);
            Ok(vec![("doubled", doubled), ("audit", Outgoing::new(&event.payload)?)])
        };
        // With the default, a bad enough network turns events into dead letters.
        builder.concurrency(3).max_attempts(1000).handle(handle).await.unwrap();
        clients.push(client);
    }
    until_done(&server, 1000).await;
    assert!(proxy.cuts() > 10, "{}", proxy.cuts());
    for (topic, factor) in [("doubled", 2), ("audit", 1)] {
        let mut outputs = server.payloads(topic).await;
        outputs.sort_by_key(Value::as_u64);
        let expected: Vec<_> = inputs.iter().map(|input| Value::from(input * factor)).collect();
        assert_eq!(outputs, expected, "{topic}");
    }
}

#[tokio::test]
async fn discards_the_output_if_the_event_was_marked_meanwhile() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let other = server.connect().await;
    let handle = move |event: Received<u64>| {
        let other = other.clone();
        async move {
            if event.payload == 1 {
                other.mark("t", "g", std::slice::from_ref(&event.id), DAY).await?;
            }
            Ok(vec![("u", Outgoing::new(&event.payload)?)])
        }
    };
    let builder = client.transform_exactly_once("t", "g").from(Start::Earliest).ttl(DAY);
    builder.handle(handle).await.unwrap();
    client.publish_batch("t", &[1, 2]).await.unwrap();
    until_done(&server, 2).await;
    assert_eq!(server.payloads("u").await, [2]);
}

/// Another member has the event by then.
#[tokio::test]
async fn discards_the_output_if_the_lease_is_lost() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    let slow = client_builder(&proxy.ws()).connect().await.unwrap();
    let gated = GatedHandler::new();
    let handle = {
        let gated = gated.clone();
        move |event: Received<u64>| {
            let gated = gated.clone();
            async move {
                gated.handle(&event).await;
                Ok(vec![("u", Outgoing::new("slow")?)])
            }
        }
    };
    let subscription = slow.transform_exactly_once("t", "g").handle(handle).await.unwrap();
    let quick = server.connect().await;
    quick.publish("t", &1).await.unwrap();
    gated.started.wait_for_len(1).await;
    proxy.close(true);
    proxy.cut();
    let handle = |_: Received<u64>| async { Ok(vec![("u", Outgoing::new("quick")?)]) };
    quick.transform_exactly_once("t", "g").handle(handle).await.unwrap();
    until_done(&server, 1).await;
    proxy.close(false);
    gated.release_one();
    subscription.stop().await.unwrap();
    assert_eq!(server.payloads("u").await, ["quick"]);
}

#[tokio::test]
async fn output_that_cannot_be_published_is_a_failure() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let handle = |event: Received<u64>| async move {
        match event.payload {
            0 => Err(HandlerError::new("zero")),
            1 => Ok(vec![("u".to_owned(), Outgoing::new(&"x".repeat(2 << 20))?)]),
            2 => Ok(vec![("U".to_owned(), Outgoing::new(&1)?)]),
            3 => Ok(vec![("u".to_owned(), Outgoing::new(&1)?.key(""))]),
            _ => Ok(vec![]),
        }
    };
    let builder = client.transform_exactly_once("t", "g").max_attempts(1);
    builder.handle(handle).await.unwrap();
    client.publish_batch("t", &[0, 1, 2, 3, 4]).await.unwrap();
    until_done(&server, 5).await;
    let letters = server.payloads("dlq.t").await;
    let reasons: Vec<_> = letters.iter().map(|letter| letter["err"].as_str().unwrap()).collect();
    let has = |words: &str| reasons.iter().any(|reason| reason.contains(words));
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(has("zero") && has("a frame of") && has("bad_topic") && has("key"), "{reasons:?}");
}
