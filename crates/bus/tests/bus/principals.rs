//! Limits that belong to a client, however many connections it opens.

use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{Connection, Principal, Rate, Settings, StartAt};
use prombus_engine::{Faults, FaultyEngine};
use prombus_proto::{ErrorCode, NewEvent};
use tokio::time::advance;

use crate::harness::{
    Harness, at_most, event, from, ids, large_event, memory, named, orders, unlimited,
};

const CONNECTION: Rate = Rate { capacity: 10, refill_per_sec: 10 };

fn limited() -> Settings {
    let principal = Rate { capacity: 20, refill_per_sec: 20 };
    Settings { connection_rate: Some(CONNECTION), principal_rate: Some(principal), ..unlimited() }
}

fn token(name: &str) -> Principal {
    Principal::Token(name.into())
}

fn connect(harness: &Harness, principal: &Principal) -> Connection {
    let connection = harness.bus.connect();
    harness.bus.identify(&connection, principal);
    connection
}

fn events(count: usize) -> Vec<NewEvent> {
    (0..count).map(|_| event("1")).collect()
}

#[tokio::test(start_paused = true)]
async fn reconnecting_for_ten_seconds_admits_no_more_than_the_principals_rate() {
    let harness = Harness::with(limited());
    let mut admitted = 0;
    for _ in 0..1000 {
        let connection = connect(&harness, &token("one"));
        while harness.try_publish(&connection, &orders(), events(1)).await.is_ok() {
            admitted += 1;
        }
        advance(Duration::from_millis(10)).await;
    }
    let exact: u64 = 20 + 10 * 20;
    assert!(exact.abs_diff(admitted) <= 1, "{admitted} instead of {exact}");
}

#[tokio::test(start_paused = true)]
async fn connections_of_one_principal_share_its_tokens_and_others_do_not() {
    let harness = Harness::with(limited());
    for _ in 0..2 {
        let connection = connect(&harness, &token("one"));
        harness.try_publish(&connection, &orders(), events(10)).await.unwrap();
    }
    let connection = connect(&harness, &token("one"));
    let refusal = harness.try_publish(&connection, &orders(), events(4)).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::RateLimited);
    assert_eq!(refusal.message, "principal publish rate exceeded");
    assert_eq!(refusal.retry_after, Some(Duration::from_millis(200)));
    assert_eq!(connection.limit.available(tokio::time::Instant::now().into_std()), 0);
    // The refusal took nothing from the connection, which may belong to somebody else now.
    harness.bus.identify(&connection, &token("two"));
    harness.try_publish(&connection, &orders(), events(10)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn deliveries_take_tokens_of_the_principal() {
    let harness = Harness::with(limited());
    for _ in 0..4 {
        harness.try_publish(&harness.bus.connect(), &orders(), events(10)).await.unwrap();
    }
    let mut delivered = 0;
    let mut connections = Vec::new();
    for group in ["a", "b", "c"] {
        let connection = connect(&harness, &token("one"));
        let group = prombus_proto::Group::new(group).unwrap();
        let options = from(StartAt::Earliest);
        let subscription =
            harness.bus.subscribe(&connection, &orders(), &group, options).await.unwrap();
        connections.push((connection, subscription));
    }
    // A millisecond, in which less than a token is added.
    crate::harness::settle().await;
    for (connection, _) in &connections {
        let mut taken = Vec::new();
        connection.delivery_queue.take(usize::MAX, &mut taken);
        delivered += taken.len();
    }
    assert_eq!(delivered, 20, "not 10 for each connection");
}

/// Without AUTH, everybody behind one address is one principal.
#[tokio::test(start_paused = true)]
async fn what_a_connection_owes_is_not_owed_by_others_of_its_principal() {
    let harness = Harness::with(limited());
    let now = || tokio::time::Instant::now().into_std();
    let attacker = connect(&harness, &token("one"));
    let neighbour = connect(&harness, &token("one"));
    // Far more than the connection and its principal have.
    attacker.limit.owe_refused_frames(1, 1 << 20, now());
    assert_eq!(attacker.limit.pays_debt_at(now()), Some(now() + Duration::from_secs(1)));
    assert_eq!(neighbour.limit.pays_debt_at(now()), None);
    advance(Duration::from_millis(50)).await;
    harness.try_publish(&neighbour, &orders(), events(1)).await.unwrap();
    // One that connects again finds no tokens of its principal, and pays in its place.
    let again = connect(&harness, &token("one"));
    for _ in 0..5 {
        again.limit.owe_refused_frames(1, 1, now());
        assert_eq!(again.limit.pays_debt_at(now()), None);
    }
    again.limit.owe_refused_frames(1, 1, now());
    assert_eq!(again.limit.pays_debt_at(now()), Some(now() + Duration::from_millis(200)));
}

/// Others have emptied the principal, and a large bucket takes long to fill up.
#[tokio::test(start_paused = true)]
async fn a_connection_owes_no_more_than_a_second_refills() {
    let rate = Rate { capacity: 1000, refill_per_sec: 10 };
    let harness = Harness::with(Settings { connection_rate: Some(rate), ..limited() });
    let now = || tokio::time::Instant::now().into_std();
    let other = connect(&harness, &token("one"));
    harness.try_publish(&other, &orders(), events(20)).await.unwrap();
    let honest = connect(&harness, &token("one"));
    honest.limit.owe_refused_frames(1, 100, now());
    assert_eq!(honest.limit.pays_debt_at(now()), None);
    assert_eq!(honest.limit.status(now()).unwrap().available, 998);
    honest.limit.owe_refused_frames(1, 64 << 20, now());
    assert_eq!(honest.limit.pays_debt_at(now()), Some(now() + Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_connection_takes_no_more_from_its_principal_than_it_pays_itself() {
    let principal = Rate { capacity: 200, refill_per_sec: 200 };
    let rate = Rate { capacity: 150, refill_per_sec: 10 };
    let harness = Harness::with(Settings {
        connection_rate: Some(rate),
        principal_rate: Some(principal),
        ..unlimited()
    });
    let now = || tokio::time::Instant::now().into_std();
    let attacker = connect(&harness, &token("one"));
    let neighbour = connect(&harness, &token("one"));
    for _ in 0..10 {
        attacker.limit.owe_refused_frames(1, 64 << 20, now());
    }
    assert_eq!(neighbour.limit.available(now()), 200 - 160);
}

#[tokio::test(start_paused = true)]
async fn batches_are_stored_although_deliveries_take_every_token() {
    let rate = Rate { capacity: 200, refill_per_sec: 200 };
    let harness = Harness::with(Settings { connection_rate: Some(rate), ..unlimited() });
    for _ in 0..30 {
        harness.try_publish(&harness.bus.connect(), &orders(), events(100)).await.unwrap();
    }
    let consumer = harness.consumer(at_most(10_000)).await;
    let (payments, start) = (named("payments"), tokio::time::Instant::now());
    let (mut stored, mut delivered) = (0, 0);
    let mut publish_at = start;
    while start.elapsed() < Duration::from_secs(12) {
        if publish_at <= tokio::time::Instant::now() {
            match harness.try_publish(&consumer.connection, &payments, events(150)).await {
                Ok(_) => stored += 1,
                Err(refusal) => {
                    publish_at = tokio::time::Instant::now() + refusal.retry_after.unwrap();
                }
            }
        }
        let arrived = consumer.arrived().await;
        delivered += arrived.len();
        drop(consumer.subscription.ack(ids(&arrived), None, None));
    }
    // Half of 12 seconds at 200 per second are 8 batches of 150.
    assert!((7..=10).contains(&stored), "{stored} batches");
    assert!(delivered >= 1000, "{delivered} deliveries");
}

#[tokio::test(start_paused = true)]
async fn bytes_are_limited_and_a_refusal_says_when_to_retry() {
    let settings = Settings { connection_bytes_per_sec: Some(10_000), ..limited() };
    let harness = Harness::with(settings);
    let connection = connect(&harness, &token("one"));
    let publish = async |bytes: usize| {
        harness.try_publish(&connection, &orders(), vec![large_event(bytes)]).await
    };
    publish(6_000).await.unwrap();
    let refusal = publish(6_000).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::RateLimited);
    assert_eq!(refusal.message, "conn publish byte rate exceeded");
    let wait = refusal.retry_after.unwrap();
    assert!(wait > Duration::from_millis(200) && wait < Duration::from_millis(300), "{wait:?}");
    publish(100).await.unwrap();
    advance(wait + Duration::from_millis(50)).await;
    publish(6_000).await.unwrap();
    // More than a second's bytes need a full bucket, and are paid for afterwards.
    publish(30_000).await.unwrap_err();
    advance(Duration::from_secs(1)).await;
    publish(30_000).await.unwrap();
    let wait = publish(100).await.unwrap_err().retry_after.unwrap();
    assert!(wait > Duration::from_secs(2), "{wait:?}");
    // Refusals return their tokens.
    for _ in 0..20 {
        assert_eq!(publish(100).await.unwrap_err().message, "conn publish byte rate exceeded");
    }
}

#[tokio::test(start_paused = true)]
async fn reconnecting_does_not_refill_the_bytes_of_a_principal() {
    let settings = Settings { connection_bytes_per_sec: Some(1000), ..limited() };
    let harness = Harness::with(settings);
    let mut admitted = 0;
    let refusal = loop {
        let connection = connect(&harness, &token("one"));
        match harness.try_publish(&connection, &orders(), vec![large_event(2000)]).await {
            Ok(_) => admitted += 1,
            Err(refusal) => break refusal,
        }
    };
    // 20 times what a connection may publish.
    assert!((9..=10).contains(&admitted), "{admitted}");
    assert_eq!(refusal.message, "principal publish byte rate exceeded");
}

#[tokio::test(start_paused = true)]
async fn tokens_of_a_publish_that_is_not_stored_return() {
    let faults = Faults::none();
    let engine = Arc::new(FaultyEngine::new(memory(), faults.clone()));
    let topic_rate = Some(CONNECTION);
    let harness = Harness::over(engine, Settings { topic_rate, ..limited() });
    let connection = connect(&harness, &token("one"));
    faults.fail_commits_before(2);
    for _ in 0..2 {
        let refusal = harness.try_publish(&connection, &orders(), events(10)).await.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::StorageUnavailable);
    }
    harness.try_publish(&connection, &orders(), events(10)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tokens_of_a_refused_ack_return() {
    let harness = Harness::with(Settings { topic_rate: Some(CONNECTION), ..limited() });
    harness.try_publish(&harness.bus.connect(), &orders(), events(1)).await.unwrap();
    let consumer = harness.consumer(at_most(10)).await;
    harness.bus.identify(&consumer.connection, &token("one"));
    let delivered = ids(&consumer.arrived().await);
    assert!(consumer.ack(delivered.clone()).await.stale.is_empty());
    let payments = named("payments");
    for _ in 0..5 {
        // Nine: the delivery took one.
        let batch = harness.batch(&consumer.connection, &payments, events(9)).unwrap();
        let refused = consumer.subscription.ack(delivered.clone(), None, Some(batch));
        assert_eq!(refused.await.unwrap().unwrap_err().code, ErrorCode::LeaseLost);
    }
    for _ in 0..5 {
        let charges = harness.bus.charge(&consumer.connection, 9).unwrap();
        let batch = harness.batch(&consumer.connection, &payments, vec![]).unwrap();
        let until = Some(harness.bus.marked_until(Duration::from_secs(60)));
        let subscription = &consumer.subscription;
        let refused = subscription.ack_charged(delivered.clone(), until, Some(batch), charges);
        assert_eq!(refused.await.unwrap().unwrap_err().code, ErrorCode::LeaseLost);
    }
    harness.try_publish(&consumer.connection, &payments, events(9)).await.unwrap();
}
