//! What members set for their whole group.

use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{GroupInfo, StartAt, SubscribeOptions};
use prombus_engine::{Engine, Faults, FaultyEngine};
use prombus_proto::ErrorCode;

use crate::harness::{
    Consumer, Harness, at_most, attempts, from, memory, orders, settle, unlimited,
};
use crate::watched_engine::WatchedEngine;

fn naming(max_attempts: u32) -> SubscribeOptions {
    SubscribeOptions { max_attempts: Some(max_attempts), ..from(StartAt::Earliest) }
}

fn info(consumer: &Consumer) -> (u32, bool) {
    let GroupInfo { max_attempts, created } = consumer.info;
    (max_attempts, created)
}

/// NACKs event 1 until it is dead-lettered, and returns after how many times.
async fn attempts_until_dead(harness: &Harness, consumer: &Consumer) -> usize {
    for attempt in 1.. {
        let delivery = consumer.next_within(Duration::from_secs(3600)).await.unwrap();
        consumer.nack(&delivery, Some(Duration::ZERO)).await;
        if !harness.dead_letters().await.is_empty() {
            return attempt;
        }
    }
    unreachable!()
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_told_about_its_group() {
    let mut harness = Harness::new();
    let first = harness.consumer(at_most(10)).await;
    assert_eq!(info(&first), (5, true), "as configured, in a new group");
    let second = harness.consumer(naming(7)).await;
    assert_eq!(info(&second), (7, false));
    assert_eq!(info(&harness.consumer(at_most(10)).await), (7, false));
    harness = harness.restart();
    drop((first, second));
    assert_eq!(info(&harness.consumer(at_most(10)).await), (7, false), "it is stored");
    assert_eq!(info(&harness.consumer(naming(5000)).await), (1000, false));
    assert_eq!(info(&harness.consumer(naming(0)).await), (1, false));
}

#[tokio::test(start_paused = true)]
async fn the_newest_subscription_that_names_max_attempts_decides_for_all_members() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(naming(2)).await;
    let other = harness.consumer(naming(4)).await;
    other.subscription.pause().await.unwrap().unwrap();
    harness.consumer(at_most(1)).await;
    assert_eq!(attempts_until_dead(&harness, &consumer).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_member_with_few_attempts_does_not_bury_what_others_retry() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    for _ in 0..3 {
        let delivery = consumer.next().await;
        consumer.nack(&delivery, Some(Duration::ZERO)).await;
    }
    let held = consumer.next().await;
    assert_eq!(held.attempt, 4);
    let hasty = harness.consumer(naming(1)).await;
    consumer.subscription.pause().await.unwrap().unwrap();
    consumer.nack(&held, Some(Duration::ZERO)).await;
    settle().await;
    // Its fourth failure was one too many, but one that a member reported.
    assert_eq!(harness.dead_letters().await.len(), 1);
    assert!(hasty.arrived().await.is_empty());

    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    for _ in 0..3 {
        let delivery = consumer.next().await;
        consumer.nack(&delivery, Some(Duration::ZERO)).await;
    }
    let delivery = consumer.next().await;
    consumer.nack(&delivery, Some(Duration::from_secs(60))).await;
    consumer.subscription.end().await.unwrap().unwrap();
    let hasty = harness.consumer(naming(1)).await;
    // The event has failed more often than that, and is delivered once more all the same.
    let delivered = hasty.next_within(Duration::from_secs(61)).await.unwrap();
    assert_eq!(delivered.attempt, 5);
    assert!(harness.dead_letters().await.is_empty());
    hasty.ack(vec![delivered.event.id]).await;
    assert!(harness.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_fails_if_what_it_names_cannot_be_stored() {
    let faults = Faults::none();
    let engine = Arc::new(FaultyEngine::new(memory(), faults.clone()));
    let harness = Harness::over(engine, unlimited());
    let member = harness.consumer(at_most(10)).await;
    faults.fail_commits_before(1);
    let refusal = harness.try_subscribe(&orders(), naming(9)).await.err().unwrap();
    assert_eq!(refusal.code, ErrorCode::StorageUnavailable);
    assert_eq!(info(&harness.consumer(at_most(10)).await), (5, false));
    assert_eq!(info(&harness.consumer(naming(9)).await), (9, false));
    drop(member);
}

#[tokio::test(start_paused = true)]
async fn all_gateways_agree_on_the_properties_of_a_group() {
    let store = WatchedEngine::for_several(memory());
    let gateway = |number| {
        let engine: Arc<dyn Engine> = store.clone();
        Harness::numbered(number, engine, unlimited())
    };
    let (one, two) = (gateway(1), gateway(2));
    one.publish(&orders(), 1).await;
    let owner = one.consumer(naming(9)).await;
    assert_eq!(info(&owner), (9, true));
    let standby = two.consumer(at_most(10)).await;
    assert_eq!(info(&standby), (9, false));
    // Named where the group is not delivered.
    let naming_standby = two.consumer(naming(2)).await;
    assert_eq!(info(&naming_standby), (2, false));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(attempts_until_dead(&one, &owner).await, 2);
    // The gateway that takes over knows them as well.
    one.publish(&orders(), 1).await;
    assert_eq!(attempts(&owner.arrived().await), [1]);
    one.bus.close().await.unwrap();
    drop((one, owner, naming_standby));
    let delivery = standby.next_within(Duration::from_secs(20)).await.unwrap();
    assert_eq!(delivery.attempt, 2);
    assert_eq!(info(&two.consumer(at_most(10)).await), (2, false));
}
