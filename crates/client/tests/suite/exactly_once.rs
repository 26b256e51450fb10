//! The marking form: what was handled is marked, and what is marked is not handled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prombus_client::{
    Client, Dedupe, DedupeFuture, EventId, Group, HandlerError, MemoryDedupe, Outgoing, Received,
    Start, Subscription, Topic,
};
use tokio::sync::Notify;

use crate::gated_handler::HeldUp;
use crate::harness::{Ledger, started, through, within};
use crate::proxy::Proxy;
use crate::unacknowledged::not_done;

const DAY: Duration = Duration::from_secs(86_400);

async fn publish(client: &Client, numbers: impl IntoIterator<Item = u64>) -> Vec<EventId> {
    let named = |number: u64| Outgoing::new(&number).unwrap().id(&format!("event-{number}"));
    let published = client.publish_batch("t", numbers.into_iter().map(named)).await.unwrap();
    published.into_iter().map(|published| published.id).collect()
}

async fn writing(client: &Client, ledger: &Ledger<u64>) -> Subscription {
    let ledger = ledger.clone();
    let handle = move |event: Received<u64>| {
        ledger.write(event.payload);
        async { Ok(()) }
    };
    let subscribing = client.subscribe_exactly_once("t", "g").from(Start::Earliest);
    // A network that is bad enough could make a dead letter of anything.
    subscribing.concurrency(4).max_attempts(1000).handle(handle).await.unwrap()
}

#[tokio::test]
async fn what_is_marked_is_acknowledged_and_not_handled() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let ids = publish(&client, 0..10).await;
    client.mark("t", "g", &[ids[3].clone(), ids[7].clone()], DAY).await.unwrap();
    let ledger = Ledger::new();
    let subscription = writing(&client, &ledger).await;
    ledger.when(8).await;
    subscription.stop().await.unwrap();
    let mut handled = ledger.all();
    handled.sort_unstable();
    assert_eq!(handled, [0, 1, 2, 4, 5, 6, 8, 9]);
    assert_eq!(client.seen("t", "g", &ids).await.unwrap(), ids);
    assert!(client.seen("t", "other", &ids).await.unwrap().is_empty());
    assert!(not_done(&running).await.is_empty());
}

#[tokio::test]
async fn a_handler_that_fails_leaves_no_mark() {
    let running = started(&[]).await;
    let client = running.connect().await;
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
    attempts.when(2).await;
    assert!(client.seen("t", "g", &ids).await.unwrap().is_empty());
    may_succeed.notify_one();
    subscription.stop().await.unwrap();
    assert_eq!(client.seen("t", "g", &ids).await.unwrap(), ids);
    assert_eq!(attempts.all(), [1, 2]);
}

/// The mark is stored and its answer lost, or never sent: in neither case the handler runs again.
#[tokio::test]
async fn a_lost_answer_does_not_run_the_handler_again() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    let client = through(&proxy.ws()).connect().await.unwrap();
    let other = running.connect().await;
    let held_up = HeldUp::new();
    let handle = {
        let held_up = held_up.clone();
        move |event: Received<u64>| {
            let held = held_up.clone();
            async move {
                held.handle(&event).await;
                Ok(())
            }
        }
    };
    let subscribing = client.subscribe_exactly_once("t", "g").from(Start::Earliest);
    let subscription = subscribing.handle(handle).await.unwrap();

    let first = publish(&other, [1]).await;
    held_up.begun.when(1).await;
    // The server stores the mark, and nobody hears of it.
    proxy.hold(true);
    held_up.let_one_end();
    until_marked(&other, &first).await;
    proxy.cut();
    proxy.hold(false);

    let second = publish(&other, [2]).await;
    held_up.begun.when(2).await;
    // The handler ends while there is no connection: the server hears of it by the next one.
    proxy.close(true);
    proxy.cut();
    let mut state = client.state();
    let is_lost = |state: &prombus_client::ConnectionState| {
        matches!(state, prombus_client::ConnectionState::Disconnected { .. })
    };
    within(state.wait_for(is_lost)).await.unwrap().unwrap();
    held_up.let_one_end();
    assert!(other.seen("t", "g", &second).await.unwrap().is_empty());
    proxy.close(false);
    until_marked(&other, &second).await;

    publish(&other, [3]).await;
    held_up.begun.when(3).await;
    held_up.let_one_end();
    subscription.stop().await.unwrap();
    assert_eq!(held_up.begun.all(), [1, 2, 3]);
    assert!(not_done(&running).await.is_empty());
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

/// Connections end all the time, after any answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_bad_network_each_is_handled_once() {
    let running = started(&[]).await;
    let ids = publish(&running.connect().await, 0..2000).await;
    let proxy = Proxy::to(running.ws()).await;
    proxy.cut_after_bytes(8000);
    let client = through(&proxy.ws()).connect().await.unwrap();
    let ledger = Ledger::new();
    let subscription = writing(&client, &ledger).await;
    ledger.when(2000).await;
    subscription.stop().await.unwrap();
    let mut handled = ledger.all();
    handled.sort_unstable();
    assert_eq!(handled, (0..2000).collect::<Vec<_>>());
    assert!(proxy.cuts() > 10, "{}", proxy.cuts());
    assert_eq!(running.connect().await.seen("t", "g", &ids).await.unwrap(), ids);
}

#[tokio::test]
async fn a_store_of_ones_own_is_asked_and_told() {
    let running = started(&[]).await;
    let client = running.connect().await;
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
    let subscribing = client.subscribe_exactly_once("t", "g").from(Start::Earliest);
    let subscribing = subscribing.store(store.clone()).ttl(DAY);
    let subscription = subscribing.handle(handle).await.unwrap();
    ledger.when(4).await;
    subscription.stop().await.unwrap();
    assert_eq!(ledger.all(), [0, 1, 3, 4]);
    assert_eq!(store.len(), 5);
    assert!(client.seen("t", "g", &ids).await.unwrap().is_empty(), "the bus has no marks then");
    assert!(not_done(&running).await.is_empty());
}

/// A store that fails to mark so often.
struct Failing {
    inner: MemoryDedupe,
    left: AtomicUsize,
}

impl Dedupe for Failing {
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
        let less = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Box::pin(async { Err(HandlerError::new("the database is away")) });
        }
        self.inner.mark(topic, group, id, ttl)
    }
}

#[tokio::test]
async fn a_store_that_does_not_take_a_mark_does_not_run_the_handler_again() {
    let running = started(&[]).await;
    let client = running.connect().await;
    publish(&client, [1]).await;
    let marks = MemoryDedupe::new();
    // More often than it is tried for one delivery.
    let store = Failing { inner: marks.clone(), left: AtomicUsize::new(7) };
    let ledger = Ledger::new();
    let handle = {
        let ledger = ledger.clone();
        move |event: Received<u64>| {
            ledger.write(event.payload);
            async { Ok(()) }
        }
    };
    let subscribing = client.subscribe_exactly_once("t", "g").from(Start::Earliest).store(store);
    let subscription = subscribing.handle(handle).await.unwrap();
    within(async {
        while marks.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .unwrap();
    subscription.stop().await.unwrap();
    assert_eq!(ledger.all(), [1]);
    assert!(not_done(&running).await.is_empty());
}
