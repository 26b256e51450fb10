//! The members of a group share its events.

use std::collections::BTreeSet;
use std::time::Duration;

use prombus_bus::{StartAt, SubscribeOptions};
use prombus_proto::ErrorCode;

use crate::harness::{
    Consumer, Harness, at_most, attempts, billing, from, ids, named, orders, seqs, settle,
};

/// Takes and acknowledges events until none arrives for a second.
async fn consume_all(consumer: &Consumer) -> Vec<u64> {
    let mut seen = Vec::new();
    while let Some(delivery) = consumer.next_within(Duration::from_secs(1)).await {
        assert_eq!(delivery.attempt, 1);
        seen.push(delivery.event.seq.0);
        drop(consumer.subscription.ack(vec![delivery.event.id], None, None));
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn two_members_share_ten_thousand_events_without_loss_or_duplicates() {
    let harness = Harness::new();
    let (ann, ben) = (harness.consumer(at_most(100)).await, harness.consumer(at_most(100)).await);
    let topic = orders();
    let (ann_had, ben_had, _) =
        tokio::join!(consume_all(&ann), consume_all(&ben), harness.publish(&topic, 10_000));
    assert_eq!(ann_had.len() + ben_had.len(), 10_000);
    let all: BTreeSet<_> = ann_had.iter().chain(&ben_had).copied().collect();
    assert_eq!(all, (1..=10_000).collect());
    assert!(ann_had.is_sorted() && ben_had.is_sorted());
    assert!(ann_had.len().min(ben_had.len()) > 2000, "{} {}", ann_had.len(), ben_had.len());
    settle().await;
    let cursor = harness.cursor().await;
    assert_eq!((cursor.floor.0, cursor.above().count()), (10_000, 0));
}

#[tokio::test(start_paused = true)]
async fn the_member_with_more_credit_gets_more() {
    let harness = Harness::new();
    let (ann, ben) = (harness.consumer(at_most(30)).await, harness.consumer(at_most(10)).await);
    harness.publish(&orders(), 30).await;
    let (ann_has, ben_has) = (ann.arrived().await, ben.arrived().await);
    assert_eq!((ann_has.len(), ben_has.len()), (25, 5), "five are free at both");
    // Ben acknowledges everything, so he has more credit.
    ben.ack(ids(&ben_has)).await;
    harness.publish(&orders(), 5).await;
    assert_eq!((ann.arrived().await.len(), ben.arrived().await.len()), (0, 5));
}

#[tokio::test(start_paused = true)]
async fn members_with_equal_credit_take_turns() {
    let harness = Harness::new();
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(harness.consumer(at_most(100)).await);
    }
    for _ in 0..30 {
        harness.publish(&orders(), 1).await;
        settle().await;
    }
    for consumer in &consumers {
        assert_eq!(consumer.arrived().await.len(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn max_in_flight_is_never_exceeded() {
    let harness = Harness::new();
    harness.publish(&orders(), 50).await;
    let consumer = harness.consumer(at_most(3)).await;
    let mut out = consumer.arrived().await;
    for _ in 0..10 {
        assert_eq!(out.len(), 3);
        let first = out.remove(0);
        consumer.ack(vec![first.event.id]).await;
        out.extend(consumer.arrived().await);
    }
    // A failed event frees its credit as well, and takes it again.
    consumer.nack(&out[0], Some(Duration::ZERO)).await;
    let again = consumer.arrived().await;
    assert_eq!((seqs(&again), attempts(&again)), (vec![out[0].event.seq.0], vec![2]));
    let description = harness.bus.describe_group(&orders(), &billing()).await.unwrap();
    assert_eq!((description.in_flight, description.members), (3, 1));
    assert_eq!(description.floor.0, 10);
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_events_of_a_stalled_member_move_to_another() {
    let harness = Harness::new();
    let stalled = harness.consumer(at_most(5)).await;
    harness.publish(&orders(), 5).await;
    assert_eq!(stalled.arrived().await.len(), 5);
    // The stalled member is paused, so that it gets none of them back.
    stalled.subscription.pause().await.unwrap().unwrap();
    let other = harness.consumer(at_most(100)).await;
    // The deadline, and a second of back-off.
    assert!(other.next_within(Duration::from_millis(30_990)).await.is_none());
    let first = other.next_within(Duration::from_millis(20)).await.unwrap();
    assert_eq!((first.event.seq.0, first.attempt), (1, 2));
    let rest = other.arrived().await;
    assert_eq!((seqs(&rest), attempts(&rest)), (vec![2, 3, 4, 5], vec![2; 4]));
}

#[tokio::test(start_paused = true)]
async fn unsent_deliveries_of_a_stalled_member_move_and_count_as_no_attempt() {
    let harness = Harness::new();
    let stalled = harness.consumer(at_most(5)).await;
    harness.publish(&orders(), 5).await;
    settle().await;
    let other = harness.consumer(at_most(100)).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let moved = other.arrived().await;
    assert!(!moved.is_empty() && attempts(&moved).iter().all(|attempt| *attempt == 1));
    // Whatever the stalled member does now, no event is leased to both.
    let left = stalled.arrived().await;
    let mut all = seqs(&moved);
    all.extend(seqs(&left));
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 5]);
    drop(stalled);
    let acked = other.ack(ids(&moved)).await;
    assert!(acked.stale.is_empty(), "{acked:?}");
    let again = other.arrived().await;
    assert_eq!((seqs(&again), attempts(&again)), (seqs(&left), vec![2; left.len()]));
}

#[tokio::test(start_paused = true)]
async fn leaving_releases_leases_at_once() {
    let harness = Harness::new();
    let (ann, ben) = (harness.consumer(at_most(2)).await, harness.consumer(at_most(100)).await);
    ben.subscription.pause().await.unwrap().unwrap();
    harness.publish(&orders(), 2).await;
    let delivered = ann.arrived().await;
    assert_eq!(delivered.len(), 2);
    ben.subscription.resume().await.unwrap().unwrap();
    ann.subscription.end().await.unwrap().unwrap();
    let moved = ben.next_within(Duration::from_millis(10)).await.unwrap();
    assert_eq!((moved.event.seq.0, moved.attempt), (1, 2));
    assert_eq!(seqs(&ben.arrived().await), [2]);
}

#[tokio::test(start_paused = true)]
async fn unsent_deliveries_of_a_leaving_member_count_as_no_attempt() {
    let harness = Harness::new();
    let ann = harness.consumer(at_most(2)).await;
    harness.publish(&orders(), 2).await;
    settle().await;
    let delivery_queue = ann.connection.delivery_queue.clone();
    drop(ann);
    let ben = harness.consumer(at_most(100)).await;
    let moved = ben.arrived().await;
    assert_eq!((seqs(&moved), attempts(&moved)), (vec![1, 2], vec![1, 1]));
    assert!(delivery_queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn groups_and_topics_do_not_mix() {
    let harness = Harness::new();
    let orders_consumer = harness.consumer(from(StartAt::Earliest)).await;
    let payments =
        harness.try_subscribe(&named("payments"), from(StartAt::Earliest)).await.unwrap();
    harness.publish(&named("payments"), 2).await;
    assert!(orders_consumer.arrived().await.is_empty());
    let delivered = payments.arrived().await;
    let acked = orders_consumer.ack(ids(&delivered)).await;
    assert_eq!(acked.stale.len(), delivered.len());
}

#[tokio::test(start_paused = true)]
async fn a_topic_whose_dead_letter_topic_would_be_too_long_has_no_groups() {
    let harness = Harness::new();
    let long = named(&"a".repeat(198));
    let refusal = harness.try_subscribe(&long, from(StartAt::Earliest)).await.err().unwrap();
    assert_eq!(refusal.code, ErrorCode::BadTopic);
}

#[tokio::test(start_paused = true)]
async fn extreme_durations_are_clamped() {
    let harness = Harness::new();
    let ack_timeout = Some(Duration::MAX);
    let options = SubscribeOptions { ack_timeout, ..from(StartAt::Earliest) };
    let consumer = harness.consumer(options).await;
    harness.publish(&orders(), 2).await;
    let delivered = consumer.arrived().await;
    let extended = consumer.subscription.extend(delivered[0].event.id.clone(), Duration::MAX);
    extended.await.unwrap().unwrap();
    consumer.nack(&delivered[1], Some(Duration::MAX)).await;
    assert!(consumer.ack(vec![delivered[0].event.id.clone()]).await.stale.is_empty());
}
