//! Rate limits: publishes are refused, deliveries wait.

use std::time::Duration;

use prombus_bus::{PublishBatch, Rate, Refusal, Settings, StartAt, TopicSettings};
use prombus_proto::ErrorCode;
use tokio::time::{Instant, advance};

use crate::harness::{Harness, event, from, ids, named, orders, seqs, stored, unlimited};

const fn rate(capacity: u64, refill_per_sec: u64) -> Rate {
    Rate { capacity, refill_per_sec }
}

fn limited() -> Settings {
    Settings {
        connection_rate: Some(rate(200, 200)),
        topic_rate: Some(rate(1000, 1000)),
        ..unlimited()
    }
}

fn events(count: usize) -> Vec<prombus_proto::NewEvent> {
    (0..count).map(|_| event("1")).collect()
}

fn refused(message: &str, retry_after: Option<Duration>) -> Refusal {
    Refusal { code: ErrorCode::RateLimited, message: message.to_owned(), retry_after }
}

#[tokio::test(start_paused = true)]
async fn a_connection_above_its_rate_is_told_when_to_retry() {
    let harness = Harness::with(limited());
    let connection = harness.bus.connect();
    harness.try_publish(&connection, &orders(), events(200)).await.unwrap();
    let refusal = harness.try_publish(&connection, &orders(), events(1)).await.unwrap_err();
    let wait = Duration::from_millis(5);
    assert_eq!(refusal, refused("conn publish rate exceeded", Some(wait)));
    let refusal = harness.try_publish(&connection, &orders(), events(100)).await.unwrap_err();
    assert_eq!(refusal.retry_after, Some(Duration::from_millis(500)));
    harness.try_publish(&harness.bus.connect(), &orders(), events(1)).await.unwrap();
    advance(wait).await;
    harness.try_publish(&connection, &orders(), events(1)).await.unwrap();
    harness.try_publish(&connection, &orders(), events(1)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_topic_above_its_rate_refuses_every_connection_and_takes_no_connection_tokens() {
    let harness = Harness::with(limited());
    for _ in 0..5 {
        harness.try_publish(&harness.bus.connect(), &orders(), events(200)).await.unwrap();
    }
    let connection = harness.bus.connect();
    let refusal = harness.try_publish(&connection, &orders(), events(200)).await.unwrap_err();
    let wait = Duration::from_millis(200);
    assert_eq!(refusal, refused("topic publish rate exceeded", Some(wait)));
    // The connection still has all tokens for another topic.
    harness.try_publish(&connection, &named("payments"), events(200)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_above_the_capacity_has_no_retry_time() {
    let settings = Settings { topic_rate: Some(rate(50, 1000)), ..limited() };
    let harness = Harness::with(settings);
    let connection = harness.bus.connect();
    let refusal = harness.try_publish(&connection, &orders(), events(201)).await.unwrap_err();
    assert_eq!(refusal, refused("conn publish rate exceeded", None));
    let refusal = harness.try_publish(&connection, &orders(), events(51)).await.unwrap_err();
    assert_eq!(refusal, refused("topic publish rate exceeded", None));
    assert!(stored(harness.engine.as_ref(), &orders()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_topic_can_have_its_own_rate() {
    let own = TopicSettings { rate: Some(rate(3, 1)), ..TopicSettings::default() };
    let harness =
        Harness::with(Settings { topics: [(orders(), own)].into_iter().collect(), ..limited() });
    let connection = harness.bus.connect();
    harness.try_publish(&connection, &orders(), events(3)).await.unwrap();
    let refusal = harness.try_publish(&connection, &orders(), events(1)).await.unwrap_err();
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(1)));
    harness.try_publish(&connection, &named("payments"), events(100)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn disabled_limits_are_off_for_every_topic() {
    let own = TopicSettings { rate: Some(rate(3, 1)), ..TopicSettings::default() };
    let harness =
        Harness::with(Settings { topics: [(orders(), own)].into_iter().collect(), ..unlimited() });
    let connection = harness.bus.connect();
    for _ in 0..10 {
        harness.try_publish(&connection, &orders(), events(1000)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn publishing_for_ten_seconds_admits_the_capacity_plus_ten_times_the_rate() {
    let harness = Harness::with(limited());
    let connection = harness.bus.connect();
    let start = Instant::now();
    let mut admitted = 0_u64;
    let mut step = 0_u64;
    loop {
        while harness.try_publish(&connection, &orders(), events(1)).await.is_ok() {
            admitted += 1;
        }
        if start.elapsed() == Duration::from_secs(10) {
            break;
        }
        step = (step * 7 + 3) % 19;
        let left = Duration::from_secs(10) - start.elapsed();
        advance(Duration::from_micros(1000 + step * 731).min(left)).await;
    }
    assert!(admitted.abs_diff(200 + 10 * 200) <= 1, "{admitted}");
}

#[tokio::test(start_paused = true)]
async fn deliveries_for_ten_seconds_are_the_capacity_plus_ten_times_the_rate() {
    let harness = Harness::with(Settings { connection_rate: Some(rate(20, 50)), ..unlimited() });
    for _ in 0..100 {
        harness.try_publish(&harness.bus.connect(), &orders(), events(10)).await.unwrap();
    }
    let start = Instant::now();
    let consumer = harness.consumer(from(StartAt::Earliest)).await;
    let mut delivered = Vec::new();
    while start.elapsed() < Duration::from_secs(10) {
        let left = Duration::from_secs(10) - start.elapsed();
        let Some(delivery) = consumer.next_within(left).await else { break };
        // Not awaited, so that only time wakes the group.
        drop(consumer.subscription.ack(vec![delivery.event.id.clone()], None, None));
        delivered.push(delivery);
    }
    let count = delivered.len() as u64;
    assert!(count.abs_diff(20 + 10 * 50) <= 1, "{count}");
    assert_eq!(seqs(&delivered), (1..=count).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn publishes_and_deliveries_share_the_connections_bucket() {
    let harness = Harness::with(Settings { connection_rate: Some(rate(10, 1)), ..unlimited() });
    harness.try_publish(&harness.bus.connect(), &orders(), events(7)).await.unwrap();
    let consumer = harness.consumer(from(StartAt::Earliest)).await;
    assert_eq!(consumer.arrived().await.len(), 7);
    let payments = named("payments");
    harness.try_publish(&consumer.connection, &payments, events(3)).await.unwrap();
    let refusal =
        harness.try_publish(&consumer.connection, &payments, events(1)).await.unwrap_err();
    assert_eq!(refusal.message, "conn publish rate exceeded");
    // A delivery waits for its half of the refill: the publish that was refused waits for the other.
    harness.try_publish(&harness.bus.connect(), &orders(), events(1)).await.unwrap();
    assert_eq!(consumer.arrived().await.len(), 0);
    assert!(consumer.next_within(Duration::from_millis(1900)).await.is_none());
    assert!(consumer.next_within(Duration::from_millis(200)).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_delivery_returns_its_token() {
    let harness = Harness::with(Settings { connection_rate: Some(rate(10, 1)), ..unlimited() });
    harness.try_publish(&harness.bus.connect(), &orders(), events(10)).await.unwrap();
    let consumer = harness.consumer(from(StartAt::Earliest)).await;
    crate::harness::settle().await;
    let payments = named("payments");
    harness.try_publish(&consumer.connection, &payments, events(1)).await.unwrap_err();
    consumer.subscription.pause().await.unwrap().unwrap();
    harness.try_publish(&consumer.connection, &payments, events(10)).await.unwrap();
    assert!(ids(&consumer.arrived().await).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_paced_push_waits_for_tokens_and_takes_no_more_than_its_share() {
    let harness = Harness::with(limited());
    let (patient, start) = (harness.bus.connect(), Instant::now());
    let mut batch = PublishBatch::new();
    batch.push_paced(&harness.bus, &patient, &orders(), events(1000)).await.unwrap();
    assert_eq!(batch.len(), 1000);
    // 200 immediately, and 800 at 200 per second.
    assert_eq!(start.elapsed().as_secs(), 4);
    // It has not taken the tokens of others.
    let others = harness.bus.connect();
    harness.try_publish(&others, &orders(), events(200)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paced_push_ends_when_the_bus_closes() {
    let harness = Harness::with(limited());
    let (connection, topic) = (harness.bus.connect(), orders());
    let mut batch = PublishBatch::new();
    let waiting = batch.push_paced(&harness.bus, &connection, &topic, events(100_000));
    let closing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        harness.bus.refuse_new_work();
    };
    let (result, ()) = tokio::join!(waiting, closing);
    assert_eq!(result.unwrap_err().code, ErrorCode::ShuttingDown);
}
