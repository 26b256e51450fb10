//! Handlers: what they receive, and what their results do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prombus_client::{ConnectionState, ErrorCode, HandlerError, Outgoing, Received, Start};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::gated_handler::GatedHandler;
use crate::harness::{Ledger, client_builder, start, within};
use crate::proxy::Proxy;
use crate::unacknowledged::{recording, unacknowledged_events};

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
    let server = start(&[]).await;
    let client = server.connect().await;
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
    let (attempt, is_lost, event) = events.wait_for_len(1).await.remove(0);
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

/// Publishes 1 to the topic `t`, and returns the reason in its dead letter.
async fn dead_letter<F>(handle: impl Fn(Received<u64>) -> F + Send + Sync + 'static) -> Value
where
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let server = start(&[]).await;
    let client = server.connect().await;
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
    let mut letters = letters.wait_for_len(2).await;
    letters.sort_by_key(|letter| letter["original"]["seq"].as_u64());
    let undecoded = letters[0]["err"].as_str().unwrap();
    assert!(undecoded.contains("cannot decode the event"), "{undecoded}");
    letters[1]["err"].clone()
}

#[tokio::test]
async fn the_dead_letter_has_the_reason() {
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
async fn a_rejected_event_is_a_dead_letter_after_one_attempt() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let (letters, attempts) = (Ledger::new(), Ledger::new());
    let ledger = letters.clone();
    let on_letter = move |event: Received<Value>| {
        ledger.write((event.payload["attempts"].clone(), event.payload["err"].clone()));
        async { Ok(()) }
    };
    client.subscribe("dlq.t", "people").from(Start::Earliest).handle(on_letter).await.unwrap();
    let ledger = attempts.clone();
    let handle = move |event: Received<String>| {
        ledger.write((event.payload.clone(), event.attempt()));
        async move {
            let number: u64 = event.payload.parse().map_err(HandlerError::reject)?;
            // A delay does not make a rejected event come back.
            let again = HandlerError::reject(format_args!("{number} is too large"));
            if number > 9 { Err(again.again_after(Duration::ZERO)) } else { Ok(()) }
        }
    };
    let subscription = client.subscribe("t", "g").handle(handle).await.unwrap();
    for text in ["seven", "8", "10"] {
        client.publish("t", &text).await.unwrap();
    }
    let letters = letters.wait_for_len(2).await;
    let expected = ["invalid digit found in string", "10 is too large"];
    assert_eq!(letters, expected.map(|reason| (json!(1), json!(reason))));
    subscription.stop().await.unwrap();
    assert_eq!(attempts.wait_for_len(3).await, ["seven", "8", "10"].map(|it| (it.to_owned(), 1)));
    assert!(unacknowledged_events(&server).await.is_empty());
}

#[tokio::test]
async fn a_panic_is_a_failure_with_its_message() {
    let reason = dead_letter(|_| async { panic!("boom at {}", 7) });
    assert_eq!(reason.await, "the handler panicked: boom at 7");
    // Before the handler has returned a future.
    let reason = dead_letter(|event| {
        assert!(event.payload > 1, "too small");
        async { Ok(()) }
    });
    assert_eq!(reason.await, "the handler panicked: too small");
}

#[tokio::test]
async fn redelivers_after_the_delay_that_the_handler_sets() {
    let server = start(&[]).await;
    let client = server.connect().await;
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
    assert_eq!(attempts.wait_for_len(2).await, [1, 2]);
    subscription.stop().await.unwrap();
    assert!(unacknowledged_events(&server).await.is_empty());
}

/// The lease is a tenth of the handler's time, and another member would get the event at once.
#[tokio::test]
async fn extends_the_lease_of_a_long_handler() {
    let server = start(&[]).await;
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
        let client = server.connect().await;
        let builder = client.subscribe("t", "g").ack_timeout(Duration::from_millis(250));
        subscriptions.push(builder.handle(handle).await.unwrap());
    }
    server.connect().await.publish("t", &1).await.unwrap();
    handled.wait_for_len(1).await;
    for subscription in subscriptions {
        subscription.stop().await.unwrap();
    }
    assert_eq!(handled.all(), [(1, false)]);
    assert!(unacknowledged_events(&server).await.is_empty());
}

#[tokio::test]
async fn runs_as_many_handlers_as_concurrency_allows() {
    let server = start(&[]).await;
    let client = server.connect().await;
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
    let builder = client.subscribe("t", "g").from(Start::Earliest);
    let subscription = builder.concurrency(3).handle(handle).await.unwrap();
    let mut all = done.wait_for_len(30).await;
    all.sort_unstable();
    assert_eq!(all, numbers);
    assert_eq!(most.load(Ordering::SeqCst), 3);
    subscription.stop().await.unwrap();
    assert!(unacknowledged_events(&server).await.is_empty());
}

#[tokio::test]
async fn handles_events_in_order_one_at_a_time() {
    let server = start(&[]).await;
    let client = server.connect().await;
    let numbers: Vec<u64> = (0..5000).collect();
    client.publish_batch("t", &numbers).await.unwrap();
    let ledger = Ledger::new();
    let subscription = recording(&server, &ledger).await;
    assert_eq!(ledger.wait_for_len(5000).await, numbers);
    subscription.stop().await.unwrap();
    assert!(unacknowledged_events(&server).await.is_empty());
}

#[tokio::test]
async fn receives_nothing_while_paused() {
    let server = start(&[]).await;
    let (client, ledger) = (server.connect().await, Ledger::new());
    let subscription = recording(&server, &ledger).await;
    subscription.pause().await.unwrap();
    subscription.pause().await.unwrap();
    client.publish("t", &1).await.unwrap();
    // Another member gets it instead.
    let other = Ledger::new();
    let others = recording(&server, &other).await;
    assert_eq!(other.wait_for_len(1).await, [1]);
    others.stop().await.unwrap();
    client.publish("t", &2).await.unwrap();
    assert!(ledger.all().is_empty());
    subscription.resume().await.unwrap();
    assert_eq!(ledger.wait_for_len(1).await, [2]);
}

#[tokio::test]
async fn subscribes_again_after_a_lost_connection_and_stays_paused() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    let client = client_builder(&proxy.ws()).connect().await.unwrap();
    let numbers = Ledger::new();
    let ledger = numbers.clone();
    let handle = move |event: Received<u64>| {
        ledger.write(event.payload);
        async { Ok(()) }
    };
    let subscription = client.subscribe("t", "g").handle(handle).await.unwrap();
    let publisher = server.connect().await;
    publisher.publish("t", &1).await.unwrap();
    numbers.wait_for_len(1).await;
    for number in 2..20 {
        reconnect(&proxy, &client).await;
        publisher.publish("t", &number).await.unwrap();
        numbers.wait_for_len(usize::try_from(number).unwrap()).await;
    }
    subscription.pause().await.unwrap();
    reconnect(&proxy, &client).await;
    publisher.publish("t", &20).await.unwrap();
    // Its answer arrives after anything that was delivered before.
    client.publish("other", &()).await.unwrap();
    assert_eq!(numbers.all().len(), 19);
    subscription.resume().await.unwrap();
    numbers.wait_for_len(20).await;
    subscription.stop().await.unwrap();
    // Lost acknowledgements did not run any handler again.
    assert_eq!(numbers.all(), (1..=20).collect::<Vec<_>>());
    assert!(unacknowledged_events(&server).await.is_empty());
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
async fn a_handler_that_outlives_the_connection_runs_once() {
    let server = start(&[]).await;
    let proxy = Proxy::to(server.ws()).await;
    let client = client_builder(&proxy.ws()).connect().await.unwrap();
    let gated = GatedHandler::new();
    let handle = {
        let gated = gated.clone();
        move |event: Received<u64>| {
            let gated = gated.clone();
            async move {
                gated.started.write(event.payload);
                event.lease_lost().await;
                gated.wait().await;
                Ok(())
            }
        }
    };
    let builder = client.subscribe("t", "g").concurrency(4);
    let subscription = builder.handle(handle).await.unwrap();
    client.publish("t", &1).await.unwrap();
    gated.started.wait_for_len(1).await;
    reconnect(&proxy, &client).await;
    // The event is redelivered to the subscription whose handler still runs.
    server.until_in_flight("t", 1).await;
    client.publish("other", &()).await.unwrap();
    gated.release_one();
    subscription.stop().await.unwrap();
    assert_eq!(gated.started.all(), [1]);
    assert!(unacknowledged_events(&server).await.is_empty());
}

#[tokio::test]
async fn stopping_waits_for_running_handlers_and_releases_the_rest() {
    let server = start(&[]).await;
    let client = server.connect().await;
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
    let subscription = client.subscribe("t", "g").handle(handle).await.unwrap();
    client.publish_batch("t", &[1, 2, 3]).await.unwrap();
    gated.started.wait_for_len(1).await;
    let stopping = tokio::spawn({
        let subscription = subscription.clone();
        async move { subscription.stop().await }
    });
    // The subscription exists until its handler is done.
    let again = client.subscribe("t", "g").handle(|_: Received<u64>| async { Ok(()) }).await;
    assert_eq!(again.unwrap_err().code(), Some(ErrorCode::AlreadySubscribed));
    gated.release_one();
    stopping.await.unwrap().unwrap();
    subscription.ended().await.unwrap();
    assert_eq!(gated.started.all(), [1]);
    assert_eq!(unacknowledged_events(&server).await, [2, 3]);
}

#[tokio::test]
async fn closing_waits_for_publishes_and_handlers() {
    let server = start(&[]).await;
    let client = server.connect().await;
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
    ledger.wait_for_len(1).await;
    let receipt = client.enqueue("t", &2).await.unwrap();
    client.clone().close().await;
    receipt.await.unwrap();
    subscription.ended().await.unwrap();
    let error = client.publish("t", &3).await.unwrap_err();
    assert_eq!(error, prombus_client::Error::Ended);
    assert_eq!(server.payloads("t").await, [1, 2]);
}
