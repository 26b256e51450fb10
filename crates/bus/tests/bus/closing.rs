//! Closing a bus.

use std::sync::Arc;

use prombus_engine::{Faults, FaultyEngine};
use prombus_proto::{ErrorCode, Seq};

use crate::harness::{
    Harness, at_most, attempts, disk, event, ids, memory, orders, seqs, settle, stored,
    stored_cursor, unlimited,
};

#[tokio::test(start_paused = true)]
async fn a_closed_bus_refuses_new_work() {
    let harness = Harness::new();
    let connection = harness.bus.connect();
    let before = harness.batch(&connection, &orders(), vec![event("1")]).unwrap();
    harness.bus.close().await.unwrap();
    harness.bus.close().await.unwrap();
    let refusal = harness.batch(&connection, &orders(), vec![event("1")]).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::ShuttingDown);
    let refusal = harness.try_subscribe(&orders(), at_most(1)).await.err().unwrap();
    assert_eq!(refusal.code, ErrorCode::ShuttingDown);
    let late = before.submit(&harness.bus).await.unwrap().stored().await;
    assert_eq!(late.unwrap_err().code, ErrorCode::ShuttingDown);
}

#[tokio::test]
async fn submitted_events_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::over(disk(folder.path()), unlimited());
    harness.publish(&orders(), 20).await;
    let consumer = harness.consumer(at_most(10)).await;
    let mut delivered = Vec::new();
    while delivered.len() < 10 {
        delivered.push(consumer.next().await);
    }
    let acked = consumer.subscription.ack(ids(&delivered[..5]), None, None);
    let mut submitted = Vec::new();
    for _ in 0..50 {
        let batch = harness.batch(&consumer.connection, &orders(), vec![event("1")]);
        submitted.push(batch.unwrap().submit(&harness.bus).await.unwrap());
    }
    harness.bus.close().await.unwrap();
    assert!(acked.await.unwrap().unwrap().stale.is_empty());
    for submitted in &mut submitted {
        submitted.stored().await.unwrap();
    }
    let engine = disk(folder.path());
    assert_eq!(stored(engine.as_ref(), &orders()).await.len(), 70);
    let cursor = stored_cursor(engine.as_ref(), &orders(), &crate::harness::billing()).await;
    assert_eq!(cursor.floor, Seq(5));
    // The leases were released, and their attempts continue.
    let harness = Harness::over(engine, unlimited());
    let consumer = harness.consumer(at_most(5)).await;
    let mut again = Vec::new();
    while again.len() < 5 {
        again.push(consumer.next().await);
    }
    assert_eq!((seqs(&again), attempts(&again)), (vec![6, 7, 8, 9, 10], vec![2; 5]));
    harness.bus.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_closed_bus_answers_every_command() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    harness.bus.close().await.unwrap();
    assert!(consumer.subscription.ack(ids(&delivered), None, None).await.is_err());
    assert!(consumer.subscription.pause().await.is_err());
    assert!(harness.bus.describe_group(&orders(), &crate::harness::billing()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_bus_closes_while_its_storage_fails() {
    let faults = Faults::none();
    let engine = Arc::new(FaultyEngine::new(memory(), faults.clone()));
    let harness = Harness::over(engine, unlimited());
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    faults.fail_commits_before(usize::MAX);
    let acked = consumer.subscription.ack(ids(&delivered), None, None);
    harness.bus.close().await.unwrap();
    assert!(!matches!(acked.await, Ok(Ok(_))), "the ack was not stored");
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_dropped_bus_end() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(10)).await;
    settle().await;
    let engine = Arc::downgrade(&harness.engine);
    drop(harness);
    drop(consumer);
    settle().await;
    assert_eq!(engine.strong_count(), 0, "a task still holds the engine");
}

#[tokio::test(start_paused = true)]
async fn before_closing_leases_can_be_settled_and_deliveries_stop() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(1)).await;
    let first = consumer.next().await;
    harness.bus.refuse_new_work();
    assert!(consumer.ack(vec![first.event.id]).await.stale.is_empty());
    consumer.subscription.resume().await.unwrap().unwrap();
    settle().await;
    assert!(consumer.connection.delivery_queue.is_empty(), "the second was not delivered");
    assert_eq!(harness.cursor().await.floor, Seq(1));
}
