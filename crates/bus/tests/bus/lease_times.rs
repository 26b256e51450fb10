//! Deadlines of leases and back-off after failures.

use std::time::Duration;

use prombus_bus::{StartAt, SubscribeOptions};
use prombus_proto::{ErrorCode, EventId};
use tokio::time::{Instant, sleep};

use crate::harness::{Harness, at_most, from, orders, settle};

#[tokio::test(start_paused = true)]
async fn a_delivery_carries_its_deadline() {
    let harness = Harness::new();
    let ack_timeout = Some(Duration::from_secs(7));
    let options = SubscribeOptions { ack_timeout, ..from(StartAt::Earliest) };
    let consumer = harness.consumer(options).await;
    let start = Instant::now();
    harness.publish(&orders(), 1).await;
    let delivery = consumer.next().await;
    assert_eq!(delivery.deadline, (start + Duration::from_secs(7)).into_std());
    let again = consumer.next().await;
    assert_eq!(again.attempt, 2);
    let waited = start.elapsed();
    // The deadline, and a second of back-off.
    assert!(waited >= Duration::from_secs(8) && waited < Duration::from_millis(8010));
}

#[tokio::test(start_paused = true)]
async fn an_extended_lease_outlives_its_deadline() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivery = consumer.next().await;
    for _ in 0..5 {
        sleep(Duration::from_secs(25)).await;
        let id = delivery.event.id.clone();
        consumer.subscription.extend(id, Duration::from_secs(30)).await.unwrap().unwrap();
    }
    assert!(consumer.arrived().await.is_empty());
    assert!(consumer.ack(vec![delivery.event.id]).await.stale.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_extension_can_shorten_a_lease_to_a_second() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivery = consumer.next().await;
    let extended = consumer.subscription.extend(delivery.event.id, Duration::ZERO);
    extended.await.unwrap().unwrap();
    // The deadline, and a second of back-off.
    assert!(consumer.next_within(Duration::from_millis(1990)).await.is_none());
    assert_eq!(consumer.next_within(Duration::from_millis(20)).await.unwrap().attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn only_the_holder_can_extend_a_lease() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivery = consumer.next().await;
    let other = harness.consumer(at_most(10)).await;
    for id in [delivery.event.id.clone(), EventId::new("nothing").unwrap()] {
        let refusal =
            other.subscription.extend(id, Duration::from_secs(9)).await.unwrap().unwrap_err();
        assert_eq!(refusal.code, ErrorCode::LeaseLost);
    }
}

#[tokio::test(start_paused = true)]
async fn the_back_off_grows_with_every_failure() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let options = SubscribeOptions { max_attempts: Some(100), ..from(StartAt::Earliest) };
    let consumer = harness.consumer(options).await;
    let mut rests = Vec::new();
    for attempt in 1..=8 {
        let delivery = consumer.next().await;
        assert_eq!(delivery.attempt, attempt);
        let start = Instant::now();
        consumer.nack(&delivery, None).await;
        settle().await;
        if attempt < 8 {
            while consumer.connection.delivery_queue.is_empty() {
                consumer.connection.delivery_queue.filled().await;
            }
            rests.push(start.elapsed().as_millis());
        }
    }
    assert_eq!(rests, [1000, 5000, 25_000, 125_000, 600_000, 600_000, 600_000]);
}

#[tokio::test(start_paused = true)]
async fn a_nack_can_set_the_back_off() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    consumer.nack(&delivered[0], Some(Duration::from_secs(90))).await;
    consumer.nack(&delivered[1], Some(Duration::ZERO)).await;
    let at_once = consumer.next_within(Duration::from_millis(5)).await.unwrap();
    assert_eq!(at_once.event.seq.0, 2);
    consumer.ack(vec![at_once.event.id]).await;
    assert!(consumer.next_within(Duration::from_secs(89)).await.is_none());
    assert_eq!(consumer.next_within(Duration::from_secs(2)).await.unwrap().event.seq.0, 1);
}
