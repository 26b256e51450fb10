//! Pause and resume.

use std::time::Duration;

use crate::harness::{Harness, at_most, attempts, ids, orders, seqs, settle};

#[tokio::test(start_paused = true)]
async fn no_event_follows_the_answer_to_a_pause() {
    let harness = Harness::new();
    harness.publish(&orders(), 20).await;
    let consumer = harness.consumer(at_most(10)).await;
    let first = consumer.next().await;
    let paused = consumer.subscription.pause();
    paused.await.unwrap().unwrap();
    assert!(consumer.connection.delivery_queue.is_empty(), "what has not left is taken back");
    consumer.ack(vec![first.event.id]).await;
    harness.publish(&orders(), 5).await;
    assert!(consumer.next_within(Duration::from_secs(3600)).await.is_none());
    consumer.subscription.resume().await.unwrap().unwrap();
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), (2..=11).collect::<Vec<_>>());
    assert_eq!(attempts(&delivered), [1; 10], "what was taken back was no attempt");
}

#[tokio::test(start_paused = true)]
async fn withdrawn_deliveries_go_to_other_members() {
    let harness = Harness::new();
    let (ann, ben) = (harness.consumer(at_most(10)).await, harness.consumer(at_most(10)).await);
    harness.publish(&orders(), 10).await;
    settle().await;
    ann.subscription.pause().await.unwrap().unwrap();
    let mut delivered = ben.arrived().await;
    delivered.sort_by_key(|delivery| delivery.event.seq);
    assert_eq!(seqs(&delivered), (1..=10).collect::<Vec<_>>());
    assert!(ann.arrived().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn leases_keep_their_deadlines_during_a_pause() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    consumer.subscription.pause().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(consumer.ack(ids(&delivered[..1])).await.stale.is_empty());
    // The deadline, and a second of back-off.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(consumer.ack(ids(&delivered[1..])).await.stale.len(), delivered.len() - 1);
    consumer.subscription.resume().await.unwrap().unwrap();
    let again = consumer.arrived().await;
    assert_eq!((seqs(&again), attempts(&again)), (vec![2], vec![2]));
}

#[tokio::test(start_paused = true)]
async fn pause_and_resume_are_idempotent() {
    let harness = Harness::new();
    let consumer = harness.consumer(at_most(10)).await;
    for _ in 0..2 {
        consumer.subscription.pause().await.unwrap().unwrap();
    }
    harness.publish(&orders(), 3).await;
    assert!(consumer.arrived().await.is_empty());
    for _ in 0..2 {
        consumer.subscription.resume().await.unwrap().unwrap();
    }
    assert_eq!(seqs(&consumer.arrived().await), [1, 2, 3]);
}
