//! Handlers: what they get, what becomes of what they answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prombus_client::{ConnectionState, ErrorCode, HandlerError, Outgoing, Received, Start};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::gated_handler::HeldUp;
use crate::harness::{Ledger, started, through, within};
use crate::proxy::Proxy;
use crate::unacknowledged::{counting, not_done};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Order {
    number: u32,
    lines: Vec<String>,
}

fn order(number: u32) -> Order {
    Order { number, lines: vec![format!("line of {number}")] }
}

#[tokio::test]
async fn a_handler_gets_the_event_as_it_was_published() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let events = Ledger::new();
    let ledger = events.clone();
    let subscription = client
        .subscribe("orders.new", "billing")
        .handle(move |event: Received<Order>| {
            ledger.write((event.attempt(), event.is_lease_lost(), event.into_event()));
            async { Ok(()) }
        })
        .await
        .unwrap();
    assert_eq!(
        (subscription.topic().as_str(), subscription.group().as_str()),
        ("orders.new", "billing")
    );
    let outgoing =
        Outgoing::new(&order(7)).unwrap().key("k").header("a", "b").tag("x").sid("s").ts(5);
    let published = client.publish("orders.new", outgoing).await.unwrap();
    let (attempt, is_lost, event) = events.when(1).await.remove(0);
    assert_eq!((attempt, is_lost), (1, false));
    assert_eq!((event.id, event.seq), (published.id, published.seq));
    assert_eq!(event.payload, order(7));
    assert_eq!(event.key.unwrap().as_str(), "k");
    assert_eq!(event.headers.get("a"), Some("b"));
    assert_eq!(
        (event.tags, event.sid, event.ts.0),
        (vec!["x".to_owned()], Some("s".to_owned()), 5)
    );
}

/// Publishes 1 to t, and answers the reason in its dead letter.
async fn dead_letter<F>(handle: impl Fn(Received<u64>) -> F + Send + Sync + 'static) -> Value
where
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let running = started(&[]).await;
    let client = running.connect().await;
    let letters = Ledger::new();
    let ledger = letters.clone();
    let on_letter = move |event: Received<Value>| {
        ledger.write(event.payload.clone());
        async { Ok(()) }
    };
    client.subscribe("dlq.t", "people").from(Start::Earliest).handle(on_letter).await.unwrap();
    client.subscribe("t", "g").max_attempts(1).handle(handle).await.unwrap();
    client.publish("t", &json!({"not": "a number"})).await.unwrap();
    client.publish("t", &1).await.unwrap();
    let mut letters = letters.when(2).await;
    letters.sort_by_key(|letter| letter["original"]["seq"].as_u64());
    let unread = letters[0]["err"].as_str().unwrap();
    assert!(unread.contains("not of the type asked for"), "{unread}");
    letters[1]["err"].clone()
}

#[tokio::test]
async fn the_reason_of_a_failure_is_in_the_dead_letter() {
    let reason = dead_letter(|_| async {
        let number: Result<u32, _> = "seven".parse::<u32>();
        number?;
        Ok(())
    });
    assert_eq!(reason.await, "invalid digit found in string");
    let reason = dead_letter(|_| async { Err(HandlerError::new("no route")) });
    assert_eq!(reason.await, "no route");
}

#[tokio::test]
async fn a_panic_is_a_failure_with_its_words() {
    let reason = dead_letter(|_| async { panic!("boom at {}", 7) });
    assert_eq!(reason.await, "the handler panicked: boom at 7");
    // Before there is a future at all.
    let reason = dead_letter(|event| {
        assert!(event.payload > 1, "too small");
        async { Ok(()) }
    });
    assert_eq!(reason.await, "the handler panicked: too small");
}

#[tokio::test]
async fn what_failed_comes_again_when_the_handler_says() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let attempts = Ledger::new();
    let ledger = attempts.clone();
    let handle = move |event: Received<u64>| {
        ledger.write(event.attempt());
        let is_first = event.attempt() == 1;
        async move {
            if is_first {
                return Err(HandlerError::new("not yet").again_after(Duration::ZERO));
            }
            Ok(())
        }
    };
    let subscription = client.subscribe("t", "g").handle(handle).await.unwrap();
    client.publish("t", &1).await.unwrap();
    assert_eq!(attempts.when(2).await, [1, 2]);
    subscription.stop().await.unwrap();
    assert!(not_done(&running).await.is_empty());
}

/// The lease is a tenth of what the handler takes, and somebody else would have the event at once.
#[tokio::test]
async fn a_long_handler_keeps_its_event() {
    let running = started(&[]).await;
    let handled = Ledger::new();
    let mut subscriptions = Vec::new();
    for _ in 0..2 {
        let ledger = handled.clone();
        let handle = move |event: Received<u64>| {
            let ledger = ledger.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(2500)).await;
                ledger.write((event.attempt(), event.is_lease_lost()));
                Ok(())
            }
        };
        let client = running.connect().await;
        let subscribing = client.subscribe("t", "g").ack_timeout(Duration::from_millis(250));
        subscriptions.push(subscribing.handle(handle).await.unwrap());
    }
    running.connect().await.publish("t", &1).await.unwrap();
    handled.when(1).await;
    for subscription in subscriptions {
        subscription.stop().await.unwrap();
    }
    assert_eq!(handled.all(), [(1, false)]);
    assert!(not_done(&running).await.is_empty());
}

#[tokio::test]
async fn as_many_handlers_run_as_are_allowed() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let three_together = Arc::new(Barrier::new(3));
    let done = Ledger::new();
    let handle = {
        let (most, done) = (Arc::clone(&most), done.clone());
        move |event: Received<u64>| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            let (three_together, done) = (Arc::clone(&three_together), done.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                three_together.wait().await;
                now.fetch_sub(1, Ordering::SeqCst);
                done.write(event.payload);
                Ok(())
            }
        }
    };
    let numbers: Vec<u64> = (0..30).collect();
    client.publish_batch("t", &numbers).await.unwrap();
    let subscribing = client.subscribe("t", "g").from(Start::Earliest);
    let subscription = subscribing.concurrency(3).handle(handle).await.unwrap();
    let mut all = done.when(30).await;
    all.sort_unstable();
    assert_eq!(all, numbers);
    assert_eq!(most.load(Ordering::SeqCst), 3);
    subscription.stop().await.unwrap();
    assert!(not_done(&running).await.is_empty());
}

#[tokio::test]
async fn one_at_a_time_keeps_the_order() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let numbers: Vec<u64> = (0..5000).collect();
    client.publish_batch("t", &numbers).await.unwrap();
    let ledger = Ledger::new();
    let subscription = counting(&running, &ledger).await;
    assert_eq!(ledger.when(5000).await, numbers);
    subscription.stop().await.unwrap();
    assert!(not_done(&running).await.is_empty());
}

#[tokio::test]
async fn paused_it_gets_nothing_until_it_is_resumed() {
    let running = started(&[]).await;
    let (client, ledger) = (running.connect().await, Ledger::new());
    let subscription = counting(&running, &ledger).await;
    subscription.pause().await.unwrap();
    subscription.pause().await.unwrap();
    client.publish("t", &1).await.unwrap();
    // Somebody else of the group gets it, and it is the only one who does.
    let other = Ledger::new();
    let others = counting(&running, &other).await;
    assert_eq!(other.when(1).await, [1]);
    others.stop().await.unwrap();
    client.publish("t", &2).await.unwrap();
    assert!(ledger.all().is_empty());
    subscription.resume().await.unwrap();
    assert_eq!(ledger.when(1).await, [2]);
}

#[tokio::test]
async fn a_lost_connection_is_made_good_and_a_pause_outlasts_it() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    let client = through(&proxy.ws()).connect().await.unwrap();
    let numbers = Ledger::new();
    let ledger = numbers.clone();
    let handle = move |event: Received<u64>| {
        ledger.write(event.payload);
        async { Ok(()) }
    };
    let subscription = client.subscribe("t", "g").handle(handle).await.unwrap();
    let publisher = running.connect().await;
    publisher.publish("t", &1).await.unwrap();
    numbers.when(1).await;
    for number in 2..20 {
        reconnect(&proxy, &client).await;
        publisher.publish("t", &number).await.unwrap();
        numbers.when(usize::try_from(number).unwrap()).await;
    }
    subscription.pause().await.unwrap();
    reconnect(&proxy, &client).await;
    publisher.publish("t", &20).await.unwrap();
    // What is published over this connection is answered behind what came over it.
    client.publish("other", &()).await.unwrap();
    assert_eq!(numbers.all().len(), 19);
    subscription.resume().await.unwrap();
    numbers.when(20).await;
    subscription.stop().await.unwrap();
    // Acknowledgements that were lost with their connections did not make anything run again.
    assert_eq!(numbers.all(), (1..=20).collect::<Vec<_>>());
    assert!(not_done(&running).await.is_empty());
}

async fn reconnect(proxy: &Proxy, client: &prombus_client::Client) {
    let mut state = client.state();
    let before = proxy.connections();
    proxy.cut();
    let is_lost = |state: &ConnectionState| matches!(state, ConnectionState::Disconnected { .. });
    within(state.wait_for(is_lost)).await.unwrap().unwrap();
    within(state.wait_for(|state| *state == ConnectionState::Connected)).await.unwrap().unwrap();
    assert!(proxy.connections() > before);
}

#[tokio::test]
async fn what_runs_through_a_lost_connection_is_not_handled_twice() {
    let running = started(&[]).await;
    let proxy = Proxy::to(running.ws()).await;
    let client = through(&proxy.ws()).connect().await.unwrap();
    let held_up = HeldUp::new();
    let handle = {
        let held_up = held_up.clone();
        move |event: Received<u64>| {
            let held = held_up.clone();
            async move {
                held.begun.write(event.payload);
                event.lease_lost().await;
                held.wait().await;
                Ok(())
            }
        }
    };
    let subscribing = client.subscribe("t", "g").concurrency(4);
    let subscription = subscribing.handle(handle).await.unwrap();
    client.publish("t", &1).await.unwrap();
    held_up.begun.when(1).await;
    reconnect(&proxy, &client).await;
    // The event is lent again, to the subscription whose handler still runs.
    running.until_lent("t", 1).await;
    client.publish("other", &()).await.unwrap();
    held_up.let_one_end();
    subscription.stop().await.unwrap();
    assert_eq!(held_up.begun.all(), [1]);
    assert!(not_done(&running).await.is_empty());
}

#[tokio::test]
async fn stopping_waits_for_what_runs_and_gives_back_the_rest() {
    let running = started(&[]).await;
    let client = running.connect().await;
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
    let subscription = client.subscribe("t", "g").handle(handle).await.unwrap();
    client.publish_batch("t", &[1, 2, 3]).await.unwrap();
    held_up.begun.when(1).await;
    let stopping = tokio::spawn({
        let subscription = subscription.clone();
        async move { subscription.stop().await }
    });
    // Stopping is known when a second subscription would be one too many still.
    let again = client.subscribe("t", "g").handle(|_: Received<u64>| async { Ok(()) }).await;
    assert_eq!(again.unwrap_err().code(), Some(ErrorCode::AlreadySubscribed));
    held_up.let_one_end();
    stopping.await.unwrap().unwrap();
    subscription.ended().await.unwrap();
    assert_eq!(held_up.begun.all(), [1]);
    assert_eq!(not_done(&running).await, [2, 3]);
}

#[tokio::test]
async fn closing_finishes_everything() {
    let running = started(&[]).await;
    let client = running.connect().await;
    let ledger = Ledger::new();
    let handle = {
        let ledger = ledger.clone();
        move |event: Received<u64>| {
            ledger.write(event.payload);
            async { Ok(()) }
        }
    };
    let subscription = client.subscribe("t", "g").handle(handle).await.unwrap();
    client.publish("t", &1).await.unwrap();
    ledger.when(1).await;
    let receipt = client.enqueue("t", &2).await.unwrap();
    client.clone().close().await;
    receipt.await.unwrap();
    subscription.ended().await.unwrap();
    let error = client.publish("t", &3).await.unwrap_err();
    assert_eq!(error, prombus_client::Error::Ended);
    assert_eq!(running.payloads("t").await, [1, 2]);
}
