//! Groups without members.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prombus_bus::Bus;
use prombus_proto::{Clock, IdSource, SeededRandom, Seq, Timestamp};

use crate::harness::{
    Harness, NOW, at_most, attempts, billing, ids, orders, seqs, settle, unlimited,
};

/// Counts how often the time is read, which a group does in each of its turns.
#[derive(Default)]
struct CountingClock(AtomicUsize);

impl Clock for CountingClock {
    fn now(&self) -> Timestamp {
        self.0.fetch_add(1, Ordering::SeqCst);
        NOW
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_without_members_leaves_memory_and_comes_back_with_its_cursor() {
    let harness = Harness::new();
    harness.publish(&orders(), 5).await;
    let consumer = harness.consumer(at_most(4)).await;
    let delivered = consumer.arrived().await;
    consumer.ack(ids(&delivered[1..2])).await;
    drop(consumer);
    settle().await;
    assert!(harness.bus.describe_group(&orders(), &billing()).await.is_none());
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let mut delivered = consumer.arrived().await;
    delivered.sort_by_key(|delivery| delivery.event.seq);
    assert_eq!(seqs(&delivered), [1, 3, 4, 5, 6, 7]);
    assert_eq!(attempts(&delivered), [2, 2, 2, 1, 1, 1], "the fifth had not left before");
    consumer.ack(ids(&delivered)).await;
    assert_eq!(harness.cursor().await.floor, Seq(7));
}

/// A dead letter should say why its event failed, although consumers connected again meanwhile.
#[tokio::test(start_paused = true)]
async fn a_group_without_members_stays_for_a_minute_if_it_knows_why_an_event_failed() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(1)).await;
    let delivery = consumer.next().await;
    consumer.nack(&delivery, Some(Duration::from_secs(50))).await;
    drop(consumer);
    tokio::time::sleep(Duration::from_secs(49)).await;
    let description = harness.bus.describe_group(&orders(), &billing()).await.unwrap();
    assert_eq!((description.members, description.in_flight), (0, 0));
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(harness.bus.describe_group(&orders(), &billing()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_group_forgets_why_an_event_failed_that_is_done() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(2)).await;
    for delivery in consumer.arrived().await {
        consumer.nack(&delivery, Some(Duration::ZERO)).await;
    }
    // The second is above the floor, then below.
    let mut again = consumer.arrived().await;
    again.sort_by_key(|delivery| delivery.event.seq);
    consumer.ack(ids(&again[1..])).await;
    consumer.ack(ids(&again[..1])).await;
    drop(consumer);
    settle().await;
    assert!(harness.bus.describe_group(&orders(), &billing()).await.is_none());
}

/// A member that joins at any moment finds the group, or starts it again.
#[tokio::test(start_paused = true)]
async fn a_member_that_joins_while_the_group_leaves_memory_finds_it() {
    let harness = Harness::new();
    for yields in 0..50 {
        drop(harness.consumer(at_most(10)).await);
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        let joined = harness.try_subscribe(&orders(), at_most(10)).await;
        let consumer = joined.unwrap_or_else(|_| panic!("after {yields} turns of other tasks"));
        harness.publish(&orders(), 1).await;
        let delivered = consumer.arrived().await;
        assert_eq!(delivered.len(), 1, "after {yields} turns of other tasks");
        consumer.ack(ids(&delivered)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_with_an_inactive_member_stays_in_memory() {
    let harness = Harness::new();
    let consumer = harness.consumer(at_most(10)).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    harness.publish(&orders(), 1).await;
    assert_eq!(consumer.arrived().await.len(), 1);
}

/// It stays in memory for a while, as it knows why its event failed.
#[tokio::test(start_paused = true)]
async fn a_group_without_members_takes_no_turn_when_its_topic_grows() {
    let clock = Arc::new(CountingClock::default());
    let ids = IdSource::new(clock.clone(), Arc::new(SeededRandom::new(1)));
    let mut harness = Harness::new();
    harness.bus =
        Bus::start(Arc::clone(&harness.engine), unlimited(), clock.clone(), Arc::new(ids));
    let count_publishes = async || {
        let before = clock.0.load(Ordering::SeqCst);
        for _ in 0..10 {
            harness.publish(&orders(), 1).await;
            settle().await;
        }
        clock.0.load(Ordering::SeqCst) - before
    };
    let without_group = count_publishes().await;
    let consumer = harness.consumer(at_most(1)).await;
    let delivery = consumer.next().await;
    consumer.nack(&delivery, Some(Duration::from_secs(50))).await;
    drop(consumer);
    settle().await;
    assert_eq!(count_publishes().await, without_group);
    assert!(harness.bus.describe_group(&orders(), &billing()).await.is_some());
}
