//! Storage that fails for a while.

use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{AfterNack, StartAt, SubscribeOptions};
use prombus_engine::{Faults, FaultyEngine};
use prombus_proto::{ErrorCode, Seq};

use crate::harness::{
    Harness, at_most, attempts, event, from, ids, memory, named, orders, seqs, settle, stored,
    unlimited,
};

fn faulty() -> (Harness, Faults) {
    let faults = Faults::none();
    let engine = Arc::new(FaultyEngine::new(memory(), faults.clone()));
    (Harness::over(engine, unlimited()), faults)
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_cannot_be_stored_is_refused() {
    let (harness, faults) = faulty();
    let connection = harness.bus.connect();
    faults.fail_commits_before(1);
    let refusal = harness.try_publish(&connection, &orders(), vec![event("1")]).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::StorageUnavailable);
    assert!(stored(harness.engine.as_ref(), &orders()).await.is_empty());
    harness.try_publish(&connection, &orders(), vec![event("1")]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_cannot_be_stored_is_refused_and_the_lease_continues() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    faults.fail_commits_before(1);
    let refusal =
        consumer.subscription.ack(ids(&delivered), None, None).await.unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::StorageUnavailable);
    assert_eq!(harness.cursor().await.floor, Seq(0));
    let description =
        harness.bus.describe_group(&orders(), &crate::harness::billing()).await.unwrap();
    assert_eq!(description.in_flight, 2);
    assert!(consumer.ack(ids(&delivered)).await.stale.is_empty());
    assert_eq!(harness.cursor().await.floor, Seq(2));
    assert!(consumer.next_within(Duration::from_secs(60)).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_ack_was_not_stored_keeps_its_deadline() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(1)).await;
    let delivered = consumer.arrived().await;
    faults.fail_commits_before(1);
    consumer.subscription.ack(ids(&delivered), None, None).await.unwrap().unwrap_err();
    let again = consumer.next_within(Duration::from_secs(31)).await.unwrap();
    assert_eq!((again.event.seq.0, again.attempt), (1, 2));
    consumer.ack(vec![again.event.id]).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_leaves_while_its_ack_fails_releases_the_event() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(1)).await;
    let delivered = consumer.arrived().await;
    faults.shut_gate();
    let acked = consumer.subscription.ack(ids(&delivered), None, None);
    faults.until_waiting(1).await;
    drop(consumer);
    settle().await;
    faults.fail_commits_before(1);
    faults.open_gate();
    acked.await.unwrap().unwrap_err();
    let other = harness.consumer(at_most(1)).await;
    let again = other.next_within(Duration::from_secs(2)).await.unwrap();
    assert_eq!((again.event.seq.0, again.attempt), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn events_published_with_an_ack_fail_with_it() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    let invoice = || {
        let events = vec![event("1")];
        harness.batch(&consumer.connection, &named("invoices"), events).unwrap()
    };
    faults.fail_commits_before(1);
    let acked = consumer.subscription.ack(ids(&delivered), None, Some(invoice()));
    assert_eq!(acked.await.unwrap().unwrap_err().code, ErrorCode::StorageUnavailable);
    assert!(stored(harness.engine.as_ref(), &named("invoices")).await.is_empty());
    let acked = consumer.subscription.ack(ids(&delivered), None, Some(invoice()));
    assert_eq!(acked.await.unwrap().unwrap().published.len(), 1);
    assert_eq!(stored(harness.engine.as_ref(), &named("invoices")).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_was_stored_is_confirmed_although_its_answer_was_lost() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    faults.fail_commits_after(1);
    assert!(consumer.ack(ids(&delivered[..1])).await.stale.is_empty());
    faults.fail_commits_after(1);
    let events = vec![event("1"), event("2")];
    let invoices = harness.batch(&consumer.connection, &named("invoices"), events).unwrap();
    let acked = consumer.subscription.ack(ids(&delivered[1..]), None, Some(invoices));
    let published = acked.await.unwrap().unwrap().published;
    assert_eq!(published.iter().map(|at| at.seq).collect::<Vec<_>>(), [Seq(1), Seq(2)]);
    assert_eq!(stored(harness.engine.as_ref(), &named("invoices")).await.len(), 2);
    assert!(consumer.next_within(Duration::from_secs(300)).await.is_none());
    assert_eq!(harness.cursor().await.floor, Seq(2));
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_ack_was_stored_is_done_whatever_was_answered() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 2).await;
    let options = SubscribeOptions { max_attempts: Some(1), ..from(StartAt::Earliest) };
    let consumer = harness.consumer(options).await;
    let delivered = consumer.arrived().await;
    let invoice = || {
        let events = vec![event("1")];
        harness.batch(&consumer.connection, &named("invoices"), events).unwrap()
    };
    // The commit is stored, its answer is lost, and the storage stays away for longer than the lease.
    faults.fail_commits_after(1);
    faults.fail_reads(usize::MAX);
    let acked = consumer.subscription.ack(ids(&delivered[..1]), None, Some(invoice()));
    assert_eq!(acked.await.unwrap().unwrap_err().code, ErrorCode::StorageUnavailable);
    let retried = consumer.subscription.ack(ids(&delivered[..1]), None, Some(invoice()));
    assert_eq!(retried.await.unwrap().unwrap_err().code, ErrorCode::StorageUnavailable);
    tokio::time::sleep(Duration::from_secs(29)).await;
    let retried = consumer.subscription.ack(ids(&delivered[..1]), None, Some(invoice()));
    faults.heal();
    assert_eq!(retried.await.unwrap().unwrap_err().code, ErrorCode::LeaseLost);
    assert_eq!(stored(harness.engine.as_ref(), &named("invoices")).await.len(), 1);
    tokio::time::sleep(Duration::from_secs(300)).await;
    // Only the event that nobody acknowledged is a dead letter.
    assert_eq!(harness.dead_letters().await.len(), 1);
    assert_eq!(harness.cursor().await.floor, Seq(2));
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_ack_was_stored_is_not_dead_lettered_at_its_deadline() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 1).await;
    let options = SubscribeOptions { max_attempts: Some(1), ..from(StartAt::Earliest) };
    let consumer = harness.consumer(options).await;
    let delivered = consumer.arrived().await;
    faults.fail_commits_after(1);
    faults.fail_reads(usize::MAX);
    consumer.subscription.ack(ids(&delivered), None, None).await.unwrap().unwrap_err();
    tokio::time::sleep(Duration::from_secs(60)).await;
    faults.heal();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(harness.dead_letters().await.is_empty());
    assert_eq!(harness.cursor().await.floor, Seq(1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_stored_later_and_once() {
    for (lost_before, lost_after) in [(3, 0), (0, 1), (0, 3), (1, 1)] {
        let (harness, faults) = faulty();
        harness.publish(&orders(), 3).await;
        let options = SubscribeOptions { max_attempts: Some(1), ..from(StartAt::Earliest) };
        let consumer = harness.consumer(options).await;
        let delivered = consumer.arrived().await;
        faults.fail_commits_before(lost_before);
        faults.fail_commits_after(lost_after);
        let id = delivered[0].event.id.clone();
        let refusal = consumer
            .subscription
            .nack(vec![id], None, AfterNack::BackOff)
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(refusal.code, ErrorCode::StorageUnavailable);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(harness.dead_letters().await.len(), 1, "{lost_before} {lost_after}");
        consumer.ack(ids(&delivered[1..])).await;
        assert_eq!(harness.cursor().await.floor, Seq(3));
        assert_eq!(harness.dead_letters().await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_reads_delay_deliveries_and_lose_nothing() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 3000).await;
    let consumer = harness.consumer(at_most(100)).await;
    let mut seen = Vec::new();
    let mut failures = 0;
    while seen.len() < 3000 {
        let Some(delivery) = consumer.next_within(Duration::from_secs(5)).await else {
            panic!("nothing came after {} events and {failures} failures", seen.len());
        };
        if seen.len() % 500 == 250 {
            faults.fail_reads(2);
            failures += 1;
        }
        seen.push(delivery.event.seq.0);
        drop(consumer.subscription.ack(vec![delivery.event.id], None, None));
    }
    assert_eq!(seen, (1..=3000).collect::<Vec<_>>());
    assert!(faults.report().reads_failed > 2, "the group met the failures");
}

#[tokio::test(start_paused = true)]
async fn subscribing_fails_while_the_cursor_cannot_be_read() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 2).await;
    for reads in [1, 1] {
        faults.fail_reads(reads);
        let refused = harness.try_subscribe(&orders(), at_most(10)).await.err().unwrap();
        assert_eq!(refused.code, ErrorCode::StorageUnavailable);
    }
    faults.fail_commits_before(1);
    let refused = harness.try_subscribe(&orders(), at_most(10)).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::StorageUnavailable);
    let consumer = harness.consumer(at_most(10)).await;
    assert_eq!(seqs(&consumer.arrived().await), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn deliveries_continue_during_a_slow_commit() {
    let (harness, faults) = faulty();
    harness.publish(&orders(), 4).await;
    let consumer = harness.consumer(at_most(2)).await;
    let first = consumer.arrived().await;
    faults.shut_gate();
    let acked = consumer.subscription.ack(ids(&first), None, None);
    let next = consumer.arrived().await;
    assert_eq!((seqs(&next), attempts(&next)), (vec![3, 4], vec![1, 1]));
    faults.open_gate();
    assert!(acked.await.unwrap().unwrap().stale.is_empty());
}
