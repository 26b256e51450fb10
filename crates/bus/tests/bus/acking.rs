//! ACK, and events published with it.

use std::time::Duration;

use prombus_bus::{AfterNack, PublishBatch, Settings, TopicSettings};
use prombus_engine::Durability;
use prombus_proto::{ErrorCode, EventId, Seq};

use crate::harness::{
    Harness, at_most, event, ids, large_event, memory, named, orders, seqs, settle, stored,
    unlimited,
};
use crate::watched_engine::WatchedEngine;

fn unknown() -> EventId {
    EventId::new("unknown").unwrap()
}

fn invoice(harness: &Harness, topic: &str) -> PublishBatch {
    harness.batch(&harness.bus.connect(), &named(topic), vec![event("\"invoice\"")]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_event_is_not_redelivered() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    let acked = consumer.ack(ids(&delivered)).await;
    assert!(acked.stale.is_empty() && acked.published.is_empty());
    let cursor = harness.cursor().await;
    assert_eq!((cursor.floor, cursor.last_id), (Seq(3), Some(delivered[2].event.id.clone())));
    assert!(consumer.next_within(Duration::from_secs(3600)).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_ack_is_answered_when_the_cursor_is_stored() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    consumer.ack(ids(&delivered[1..2])).await;
    let cursor = harness.cursor().await;
    assert_eq!(cursor.floor, Seq(0), "the first is not acknowledged");
    consumer.ack(ids(&delivered[..1])).await;
    assert_eq!(harness.cursor().await.floor, Seq(2));
}

#[tokio::test(start_paused = true)]
async fn ids_that_are_not_leased_are_stale_and_the_others_are_acknowledged() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let id = consumer.next().await.event.id;
    let acked = consumer.ack(vec![unknown(), id.clone(), id.clone()]).await;
    assert_eq!(acked.stale, [0, 2]);
    assert_eq!(consumer.ack(vec![id.clone()]).await.stale, [0]);
    let nacked =
        consumer.subscription.nack(vec![id], None, AfterNack::BackOff).await.unwrap().unwrap();
    assert!(nacked.stale);
    assert_eq!(harness.cursor().await.floor, Seq(1));
}

#[tokio::test(start_paused = true)]
async fn a_member_cannot_end_the_lease_of_another() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let holder = harness.consumer(at_most(10)).await;
    let id = holder.next().await.event.id;
    let other = harness.consumer(at_most(10)).await;
    assert_eq!(other.ack(vec![id.clone()]).await.stale, [0]);
    let nacked = other.subscription.nack(vec![id.clone()], None, AfterNack::Delay(Duration::ZERO));
    assert!(nacked.await.unwrap().unwrap().stale);
    assert!(other.arrived().await.is_empty());
    assert!(holder.ack(vec![id]).await.stale.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_ack_and_its_events_are_one_commit() {
    let engine = WatchedEngine::over(memory());
    let harness = Harness::over(engine.clone(), unlimited());
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    engine.take_commits();
    let mut publish = invoice(&harness, "invoices");
    publish.append(invoice(&harness, "letters"));
    publish.append(invoice(&harness, "invoices"));
    let acked =
        consumer.subscription.ack(ids(&delivered), None, Some(publish)).await.unwrap().unwrap();
    let places: Vec<_> = acked.published.iter().map(|position| position.seq.0).collect();
    assert_eq!(places, [1, 1, 2]);
    let commits = engine.take_commits();
    assert_eq!(commits.len(), 1);
    assert!(commits[0].changes_state);
    assert_eq!(commits[0].topics, ["invoices", "letters", "invoices"].map(named));
    assert_eq!(harness.cursor().await.floor, Seq(1));
}

#[tokio::test(start_paused = true)]
async fn every_ack_gets_the_positions_of_its_own_events() {
    let harness = Harness::new();
    harness.publish(&orders(), 4).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    let answers: Vec<_> = ids(&delivered)
        .into_iter()
        .zip([2, 0, 1, 3])
        .map(|(id, count)| {
            let mut publish = PublishBatch::new();
            (0..count).for_each(|_| publish.append(invoice(&harness, "invoices")));
            consumer.subscription.ack(vec![id], None, Some(publish))
        })
        .collect();
    let mut places = Vec::new();
    for answer in answers {
        let acked = answer.await.unwrap().unwrap();
        places.push(acked.published.iter().map(|position| position.seq.0).collect::<Vec<_>>());
    }
    assert_eq!(places, [vec![1, 2], vec![], vec![3], vec![4, 5, 6]]);
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_publishes_needs_every_lease() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    let late = delivered[0].event.id.clone();
    consumer.nack(&delivered[0], Some(Duration::from_secs(5))).await;
    let both = ids(&delivered);
    let publish = Some(invoice(&harness, "invoices"));
    let refusal = consumer.subscription.ack(both, None, publish).await.unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::LeaseLost);
    assert!(refusal.message.contains(&late.to_string()), "{refusal}");
    assert!(stored(harness.engine.as_ref(), &named("invoices")).await.is_empty());
    assert!(consumer.ack(ids(&delivered[1..])).await.stale.is_empty(), "its lease goes on");
}

/// A group on a buffered topic publishes to an fsynced one with fsync.
#[tokio::test(start_paused = true)]
async fn events_published_with_an_ack_get_the_durability_of_their_topic() {
    let buffered =
        TopicSettings { durability: Some(Durability::Buffered), ..TopicSettings::default() };
    let engine = WatchedEngine::over(memory());
    let topics = [(orders(), buffered)].into_iter().collect();
    let harness = Harness::over(engine.clone(), Settings { topics, ..unlimited() });
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    engine.take_commits();
    consumer.ack(ids(&delivered[..1])).await;
    assert_eq!(engine.take_commits()[0].durability, Durability::Buffered);
    let publish = Some(invoice(&harness, "invoices"));
    consumer.subscription.ack(ids(&delivered[1..]), None, publish).await.unwrap().unwrap();
    assert_eq!(engine.take_commits()[0].durability, Durability::Fsync);
}

#[tokio::test(start_paused = true)]
async fn acks_that_publish_much_do_not_fail_each_other() {
    let engine = WatchedEngine::over(memory());
    let harness = Harness::over(engine.clone(), unlimited());
    harness.publish(&orders(), 60).await;
    let consumer = harness.consumer(at_most(100)).await;
    let delivered = consumer.arrived().await;
    engine.take_commits();
    let answers: Vec<_> = ids(&delivered)
        .into_iter()
        .map(|id| {
            let large = vec![large_event(1_000_000)];
            let large = harness.batch(&consumer.connection, &named("invoices"), large);
            consumer.subscription.ack(vec![id], None, Some(large.unwrap()))
        })
        .collect();
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap().published.len(), 1);
    }
    assert!(engine.take_commits().iter().all(|commit| commit.bytes < 8 << 20));
    assert_eq!(harness.cursor().await.floor, Seq(60));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_left_is_not_subscribed() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let leaver = harness.consumer(at_most(10)).await;
    let delivered = leaver.arrived().await;
    // Both commands are queued at once: the ACK comes first and counts.
    let acked = leaver.subscription.ack(ids(&delivered), None, None);
    drop(leaver);
    assert!(acked.await.unwrap().unwrap().stale.is_empty());
    let other = harness.consumer(at_most(10)).await;
    assert!(seqs(&other.arrived().await).is_empty());
    settle().await;
    assert_eq!(harness.cursor().await.floor, Seq(1));
}

/// The lease has expired and its back-off is over, and the redelivery waits in the queue of the same consumer when its ACK arrives.
#[tokio::test(start_paused = true)]
async fn a_late_ack_withdraws_the_redelivery() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    tokio::time::sleep(Duration::from_secs(32)).await;
    assert!(!consumer.connection.delivery_queue.is_empty());
    assert!(consumer.ack(ids(&delivered[..1])).await.stale.is_empty());
    consumer.nack(&delivered[1], Some(Duration::from_secs(5))).await;
    assert!(consumer.arrived().await.is_empty());
    let again = consumer.next_within(Duration::from_secs(6)).await.unwrap();
    assert_eq!((again.event.seq, again.attempt), (Seq(2), 3));
}

/// One group must not keep others from their turn.
#[tokio::test(start_paused = true)]
async fn a_group_that_handles_many_ids_lets_others_go_on_in_between() {
    let harness = Harness::new();
    let consumer = harness.consumer(at_most(10)).await;
    let made_up: Vec<_> = (0..10_000).map(|n: u32| EventId::new(&n.to_string()).unwrap()).collect();
    let ack = || consumer.subscription.ack(made_up.clone(), None, None);
    let (first, second, mut third) = (ack(), ack(), ack());
    assert_eq!(first.await.unwrap().unwrap().stale.len(), 10_000);
    assert!(third.try_recv().is_err(), "all are handled at once");
    assert_eq!(second.await.unwrap().unwrap().stale.len(), 10_000);
    assert_eq!(third.await.unwrap().unwrap().stale.len(), 10_000);
}
