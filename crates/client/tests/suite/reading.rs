//! Replay and export.

use futures_util::{StreamExt, TryStreamExt};
use prombus_client::{Error, Event, Outgoing};

use crate::harness::{TestServer, client_builder, start};
use crate::proxy::Proxy;

/// Starts a server with `count` numbers in the topic `t`, each of them its own timestamp.
async fn filled(count: u64) -> TestServer {
    let server = start(&[]).await;
    let events = (0..count).map(|number| Outgoing::new(&number).unwrap().ts(number));
    server.connect().await.publish_batch("t", events).await.unwrap();
    server
}

fn payloads(events: Vec<Event<u64>>) -> Vec<u64> {
    events.into_iter().map(|event| event.payload).collect()
}

#[tokio::test]
async fn replays_page_after_page() {
    let server = filled(2500).await;
    let client = server.connect().await;
    let all = client.replay("t").stream().unwrap().try_collect::<Vec<_>>().await.unwrap();
    let id = all[99].id.clone();
    assert_eq!(payloads(all), (0..2500).collect::<Vec<_>>());
    let some = client.replay("t").after_id(&id).limit(3).stream().unwrap();
    assert_eq!(payloads(some.try_collect().await.unwrap()), [100, 101, 102]);
    let some = client.replay("t").from_ts(2490).limit(1200).stream().unwrap();
    assert_eq!(payloads(some.try_collect().await.unwrap()).len(), 10);
    let none = client.replay("t").limit(0).stream::<u64>().unwrap();
    assert_eq!(none.count().await, 0);
}

#[tokio::test]
async fn exports_all_events_or_a_range() {
    let server = filled(2500).await;
    let client = server.connect().await;
    let all = client.export("t").stream().unwrap().try_collect::<Vec<_>>().await.unwrap();
    let id = all[2000].id.clone();
    assert_eq!(payloads(all), (0..2500).collect::<Vec<_>>());
    let part = client.export("t").after_id(&id).from_ts(10).to_ts(2010).stream().unwrap();
    assert_eq!(payloads(part.try_collect().await.unwrap()), (2001..=2010).collect::<Vec<_>>());
}

#[tokio::test]
async fn resumes_an_export_without_duplicates() {
    let server = filled(5000).await;
    let proxy = Proxy::to(server.inner.http()).await;
    proxy.cut_after_bytes(50_000);
    let builder = client_builder(&server.inner.ws_url()).http(proxy.http());
    let client = builder.connect().await.unwrap();
    let all = client.export("t").stream().unwrap().try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(payloads(all), (0..5000).collect::<Vec<_>>());
    assert!(proxy.cuts() > 2, "{}", proxy.cuts());
    // A page of a replay is not resumed, and is larger than what the proxy lets through now.
    let cut = proxy.cuts();
    proxy.cut_after_bytes(1000);
    let mut replay = client.replay("t").stream::<u64>().unwrap();
    let lost = replay.next().await.unwrap().unwrap_err();
    assert!(matches!(lost, Error::Lost(_)) && lost.is_retryable(), "{lost}");
    assert!(proxy.cuts() > cut + 1);
    proxy.cut_after_bytes(usize::MAX);
    let all = client.replay("t").stream().unwrap().try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(payloads(all).len(), 5000);
}

#[tokio::test]
async fn reports_payloads_of_another_type() {
    let server = filled(3).await;
    let client = server.connect().await;
    let mut texts = client.export("t").stream::<String>().unwrap();
    assert!(matches!(texts.next().await, Some(Err(Error::NotDecoded(_)))));
    let client = client_builder(&server.inner.ws_url()).connect().await.unwrap();
    let error = client.export("t").stream::<u64>().err().unwrap();
    assert_eq!(error, Error::NoHttpAddress);
}
