//! Subscriptions that mark handled events and skip marked ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prombus_client::{
    Client, Dedupe, DedupeFuture, EventId, Group, HandlerError, MemoryDedupe, Outgoing, Received,
    Start, Subscription, Topic,
};
use tokio::sync::Notify;

use crate::gated_handler::GatedHandler;
use crate::harness::{Ledger, client_builder, start, within};
use crate::proxy::Proxy;
use crate::unacknowledged::unacknowledged_events;

const DAY: Duration = Duration::from_secs(86_400);

async fn publish(client: &Client, numbers: impl IntoIterator<Item = u64>) -> Vec<EventId> {
    let named = |number: u64| Outgoing::new(&number).unwrap().id(&format!("event-{number}"));
    let published = client.publish_batch("t", numbers.into_iter().map(named)).await.unwrap();
    published.into_iter().map(|published| published.id).collect()
}

async fn record_all(client: &Client, ledger: &Ledger<u64>) -> Subscription {
    let ledger = ledger.clone();
    let handle = move |event: Received<u64>| {
        ledger.write(event.payload);
        async { Ok(()) }
    };
    let builder = client.subscribe_exactly_once("t", "g").from(Start::Earliest);
    // With the default, a bad enough network turns events into dead letters.
    builder.concurrency(4).max_attempts(1000).handle(handle).await.unwrap()
}

#[tokio::test]
async fn acknowledges_marked_events_without_handling_them() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let ids = publish(&client, 0..10).await;
    client.mark("t", "g", &[ids[3].clone(), ids[7].clone()], DAY).await.unwrap();
    let ledger = Ledger::new();
    let subscription = record_all(&client, &ledger).await;
    ledger.wait_for_len(8).await;
    subscription.stop().await.unwrap();
    let mut handled = ledger.all();
    handled.sort_unstable();
    assert_eq!(handled, [0, 1, 2, 4, 5, 6, 8, 9]);
    assert_eq!(client.seen("t", "g", &ids).await.unwrap(), ids);
    assert!(client.seen("t", "other", &ids).await.unwrap().is_empty());
    assert!(unacknowledged_events(&server).await.is_empty());
}

#[tokio::test]
async fn a_failed_handler_leaves_no_mark() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let (attempts, may_succeed) = (Ledger::new(), Arc::new(Notify::new()));
    let handle = {
        let (attempts, may_succeed) = (attempts.clone(), Arc::clone(&may_succeed));
        move |event: Received<u64>| {
            attempts.write(event.attempt());
            let may_succeed = Arc::clone(&may_succeed);
            async move {
                if event.attempt() == 1 {
                    return Err(HandlerError::new("not yet").again_after(Duration::ZERO));
                }
                may_succeed.notified().await;
                Ok(())
            }
        }
    };
    let subscription = client.subscribe_exactly_once("t", "g").handle(handle).await.unwrap();
    let ids = publish(&client, [1]).await;
    attempts.wait_for_len(2).await;
    assert!(client.seen("t", "g", &ids).await.unwrap().is_empty());
    may_succeed.notify_one();
    subscription.stop().await.unwrap();
    assert_eq!(client.seen("t", "g", &ids).await.unwrap(), ids);
    assert_eq!(attempts.all(), [1, 2]);
}

/// Once the answer to the mark is lost, and once the mark could not be sent.
#[tokio::test]
async fn a_lost_connection_does_not_run_the_handler_again() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    let client = client_builder(&proxy.ws()).connect().await.unwrap();
    let other = server.connect().await;
    let gated = GatedHandler::new();
    let handle = {
        let gated = gated.clone();
        move |event: Received<u64>| {
            let gated = gated.clone();
            async move {
                gated.handle(&event).await;
                Ok(())
            }
        }
    };
    let builder = client.subscribe_exactly_once("t", "g").from(Start::Earliest);
    let subscription = builder.handle(handle).await.unwrap();

    let first = publish(&other, [1]).await;
    gated.started.wait_for_len(1).await;
    // The server stores the mark, but its answer does not arrive.
    proxy.hold(true);
    gated.release_one();
    until_marked(&other, &first).await;
    proxy.cut();
    proxy.hold(false);

    let second = publish(&other, [2]).await;
    gated.started.wait_for_len(2).await;
    // The handler finishes while disconnected; the mark is sent over the next connection.
    proxy.close(true);
    proxy.cut();
    let mut state = client.state();
    let is_lost = |state: &prombus_client::ConnectionState| {
        matches!(state, prombus_client::ConnectionState::Disconnected { .. })
    };
    within(state.wait_for(is_lost)).await.unwrap().unwrap();
    gated.release_one();
    assert!(other.seen("t", "g", &second).await.unwrap().is_empty());
    proxy.close(false);
    until_marked(&other, &second).await;

    publish(&other, [3]).await;
    gated.started.wait_for_len(3).await;
    gated.release_one();
    subscription.stop().await.unwrap();
    assert_eq!(gated.started.all(), [1, 2, 3]);
    assert!(unacknowledged_events(&server).await.is_empty());
}

async fn until_marked(client: &Client, ids: &[EventId]) {
    within(async {
        while client.seen("t", "g", ids).await.unwrap() != ids {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
}

/// Connections are cut again and again, after any answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_each_event_once_over_a_bad_network() {
    let server = start(&[]).await;
    let ids = publish(&server.connect().await, 0..2000).await;
    let proxy = Proxy::to(server.ws()).await;
    proxy.cut_after_bytes(8000);
    let client = client_builder(&proxy.ws()).connect().await.unwrap();
    let ledger = Ledger::new();
    let subscription = record_all(&client, &ledger).await;
    ledger.wait_for_len(2000).await;
    subscription.stop().await.unwrap();
    let mut handled = ledger.all();
    handled.sort_unstable();
    assert_eq!(handled, (0..2000).collect::<Vec<_>>());
    assert!(proxy.cuts() > 10, "{}", proxy.cuts());
    assert_eq!(server.connect().await.seen("t", "g", &ids).await.unwrap(), ids);
}

#[tokio::test]
async fn uses_a_custom_store_of_marks() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let ids = publish(&client, 0..5).await;
    let (topic, group) = (Topic::new("t").unwrap(), Group::new("g").unwrap());
    let store = MemoryDedupe::new();
    store.mark(&topic, &group, &ids[2], DAY).await.unwrap();
    let ledger = Ledger::new();
    let handle = {
        let ledger = ledger.clone();
        move |event: Received<u64>| {
            ledger.write(event.payload);
            async { Ok(()) }
        }
    };
    let builder = client.subscribe_exactly_once("t", "g").from(Start::Earliest);
    let builder = builder.store(store.clone()).ttl(DAY);
    let subscription = builder.handle(handle).await.unwrap();
    ledger.wait_for_len(4).await;
    subscription.stop().await.unwrap();
    assert_eq!(ledger.all(), [0, 1, 3, 4]);
    assert_eq!(store.len(), 5);
    assert!(client.seen("t", "g", &ids).await.unwrap().is_empty(), "the bus has no marks");
    assert!(unacknowledged_events(&server).await.is_empty());
}

/// A store that fails to mark `left` times.
struct FailingStore {
    inner: MemoryDedupe,
    left: AtomicUsize,
}

impl Dedupe for FailingStore {
    fn seen<'a>(&'a self, t: &'a Topic, g: &'a Group, id: &'a EventId) -> DedupeFuture<'a, bool> {
        self.inner.seen(t, g, id)
    }

    fn mark<'a>(
        &'a self,
        topic: &'a Topic,
        group: &'a Group,
        id: &'a EventId,
        ttl: Duration,
    ) -> DedupeFuture<'a, ()> {
        let decrement = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok() {
            return Box::pin(async { Err(HandlerError::new("the database is unavailable")) });
        }
        self.inner.mark(topic, group, id, ttl)
    }
}

#[tokio::test]
async fn a_store_that_fails_to_mark_does_not_run_the_handler_again() {
    let server = start(&[]).await;
    let client = server.connect().await;
    publish(&client, [1]).await;
    let marks = MemoryDedupe::new();
    // More failures than attempts per delivery.
    let store = FailingStore { inner: marks.clone(), left: AtomicUsize::new(7) };
    let ledger = Ledger::new();
    let handle = {
        let ledger = ledger.clone();
        move |event: Received<u64>| {
            ledger.write(event.payload);
            async { Ok(()) }
        }
    };
    let builder = client.subscribe_exactly_once("t", "g").from(Start::Earliest).store(store);
    let subscription = builder.handle(handle).await.unwrap();
    within(async {
        while marks.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
    subscription.stop().await.unwrap();
    assert_eq!(ledger.all(), [1]);
    assert!(unacknowledged_events(&server).await.is_empty());
}
