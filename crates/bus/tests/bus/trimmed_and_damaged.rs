//! Events that are trimmed or damaged.

use std::time::Duration;

use prombus_bus::StartAt;
use prombus_engine::Engine;
use prombus_proto::{Event, Seq};

use crate::harness::{
    Harness, at_most, billing, from, ids, memory, orders, seqs, settle, unlimited,
};
use crate::watched_engine::WatchedEngine;

#[tokio::test(start_paused = true)]
async fn a_lagging_group_continues_with_what_retention_left() {
    let harness = Harness::new();
    harness.publish(&orders(), 10).await;
    let consumer = harness.consumer(at_most(2)).await;
    let delivered = consumer.arrived().await;
    consumer.ack(ids(&delivered)).await;
    drop(consumer);
    let harness = harness.restart();
    harness.engine.trim(&orders(), Seq(8)).await.unwrap();
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [8, 9, 10]);
    consumer.ack(ids(&delivered)).await;
    assert_eq!(harness.cursor().await.floor, Seq(10));
}

#[tokio::test(start_paused = true)]
async fn a_fully_trimmed_topic_leaves_nothing_to_do() {
    let harness = Harness::new();
    harness.publish(&orders(), 10).await;
    drop(harness.consumer(from(StartAt::Earliest)).await);
    let harness = harness.restart();
    harness.engine.trim(&orders(), Seq(11)).await.unwrap();
    let consumer = harness.consumer(at_most(10)).await;
    assert!(consumer.arrived().await.is_empty());
    harness.publish(&orders(), 1).await;
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [11]);
    consumer.ack(ids(&delivered)).await;
    assert_eq!(harness.cursor().await.floor, Seq(11));
}

#[tokio::test(start_paused = true)]
async fn trimming_a_leased_event_frees_its_credit() {
    let harness = Harness::new();
    harness.publish(&orders(), 4).await;
    let harness = harness.restart();
    let consumer = harness.consumer(at_most(3)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [1, 2, 3]);
    harness.engine.trim(&orders(), Seq(4)).await.unwrap();
    // The redelivery notices that it is gone.
    consumer.nack(&delivered[0], Some(Duration::ZERO)).await;
    let next = consumer.arrived().await;
    assert_eq!(seqs(&next), [4]);
    let acked = consumer.ack(ids(&delivered)).await;
    assert_eq!(acked.stale.len(), delivered.len());
    harness.publish(&orders(), 5).await;
    let more = consumer.arrived().await;
    assert_eq!(seqs(&more), [5, 6], "three are out at a time, as before");
    let description = harness.bus.describe_group(&orders(), &billing()).await.unwrap();
    assert_eq!((description.floor, description.in_flight), (Seq(3), 3));
}

#[tokio::test(start_paused = true)]
async fn a_damaged_range_is_skipped_with_one_dead_letter() {
    let engine = WatchedEngine::over(memory());
    let harness = Harness::over(engine.clone(), unlimited());
    harness.publish(&orders(), 10).await;
    engine.damage(&orders(), 4, 6);
    let consumer = harness.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [1, 2, 3, 7, 8, 9, 10]);
    consumer.ack(ids(&delivered)).await;
    assert_eq!(harness.cursor().await.floor, Seq(10));
    let letters = harness.dead_letters().await;
    assert_eq!(letters.len(), 1);
    let (_, letter) = Event::decode(&letters[0].json).unwrap();
    let payload: serde_json::Value = serde_json::from_slice(letter.payload.as_bytes()).unwrap();
    assert_eq!(payload["err"], "events 4 to 6 of orders are damaged: a flipped bit");
    assert_eq!((&payload["original"], &payload["attempts"]), (&serde_json::Value::Null, &0.into()));
}

#[tokio::test(start_paused = true)]
async fn a_redelivery_that_is_damaged_gets_its_own_dead_letter() {
    let engine = WatchedEngine::over(memory());
    let harness = Harness::over(engine.clone(), unlimited());
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(100)).await;
    assert_eq!(consumer.arrived().await.len(), 3);
    settle().await;
    let harness = harness.restart();
    engine.damage(&orders(), 2, 2);
    let consumer = harness.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(seqs(&delivered), [1, 3]);
    consumer.ack(ids(&delivered)).await;
    assert_eq!(harness.cursor().await.floor, Seq(3));
    assert_eq!(harness.dead_letters().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_event_is_dead_lettered_without_its_original() {
    let engine = WatchedEngine::over(memory());
    let harness = Harness::over(engine.clone(), unlimited());
    harness.publish(&orders(), 1).await;
    let options = prombus_bus::SubscribeOptions { max_attempts: Some(1), ..at_most(1) };
    let consumer = harness.consumer(options).await;
    let delivery = consumer.next().await;
    engine.damage(&orders(), 1, 1);
    consumer.nack(&delivery, None).await;
    let letters = harness.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert!(String::from_utf8_lossy(&letters[0].json).contains("\"original\":null"));
    assert_eq!(engine.bounds(&orders()).await.unwrap().count(), 1, "nothing was deleted");
}
