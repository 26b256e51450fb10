//! Replay and export.

use futures_util::{StreamExt, TryStreamExt};
use prombus_client::{Error, Event, Outgoing};

use crate::harness::{Running, started, through};
use crate::proxy::Proxy;

/// A topic t with so many numbers, each of them its own time.
async fn filled(count: u64) -> Running {
    let running = started(&[]).await;
    let events = (0..count).map(|number| Outgoing::new(&number).unwrap().ts(number));
    running.connect().await.publish_batch("t", events).await.unwrap();
    running
}

fn payloads(events: Vec<Event<u64>>) -> Vec<u64> {
    events.into_iter().map(|event| event.payload).collect()
}

#[tokio::test]
async fn a_replay_goes_on_from_page_to_page() {
    let running = filled(2500).await;
    let client = running.connect().await;
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
async fn an_export_is_all_or_a_part() {
    let running = filled(2500).await;
    let client = running.connect().await;
    let all = client.export("t").stream().unwrap().try_collect::<Vec<_>>().await.unwrap();
    let id = all[2000].id.clone();
    assert_eq!(payloads(all), (0..2500).collect::<Vec<_>>());
    let part = client.export("t").after_id(&id).from_ts(10).to_ts(2010).stream().unwrap();
    assert_eq!(payloads(part.try_collect().await.unwrap()), (2001..=2010).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_export_that_breaks_off_goes_on_with_each_event_once() {
    let running = filled(5000).await;
    let proxy = Proxy::to(running.server.http()).await;
    proxy.cut_after_bytes(50_000);
    let builder = through(&running.server.ws_url()).http(proxy.http());
    let client = builder.connect().await.unwrap();
    let all = client.export("t").stream().unwrap().try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(payloads(all), (0..5000).collect::<Vec<_>>());
    assert!(proxy.cuts() > 2, "{}", proxy.cuts());
    // A page of a replay is larger than what a connection passes on now, and comes whole or not.
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
async fn what_is_of_another_type_is_an_error_of_its_own() {
    let running = filled(3).await;
    let client = running.connect().await;
    let mut texts = client.export("t").stream::<String>().unwrap();
    assert!(matches!(texts.next().await, Some(Err(Error::NotDecoded(_)))));
    let client = through(&running.server.ws_url()).connect().await.unwrap();
    let error = client.export("t").stream::<u64>().err().unwrap();
    assert_eq!(error, Error::NoHttpAddress);
}
