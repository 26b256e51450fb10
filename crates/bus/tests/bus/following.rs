//! Where a group starts, and how it moves from stored to recent events.

use std::time::Duration;

use prombus_bus::{StartAt, SubscribeOptions};
use prombus_proto::{ErrorCode, EventId, NewEvent, Timestamp};

use crate::harness::{
    Consumer, Harness, at_most, disk, event, from, large_event, orders, seqs, unlimited,
};

/// A harness with three events: times 10, 20, 30, ids a, b, c.
async fn three_events() -> Harness {
    let harness = Harness::new();
    let events = [("a", 10), ("b", 20), ("c", 30)].map(|(id, ts)| NewEvent {
        id: Some(EventId::new(id).unwrap()),
        ts: Some(Timestamp(ts)),
        ..event("1")
    });
    harness.try_publish(&harness.bus.connect(), &orders(), events.into()).await.unwrap();
    harness
}

#[tokio::test(start_paused = true)]
async fn a_new_group_starts_at_the_requested_position() {
    let after = |id| StartAt::AfterId(EventId::new(id).unwrap());
    for (start, expected) in [
        (StartAt::Earliest, vec![1, 2, 3, 4]),
        (StartAt::Latest, vec![4]),
        (StartAt::Time(Timestamp(20)), vec![2, 3, 4]),
        (StartAt::Time(Timestamp(21)), vec![3, 4]),
        (StartAt::Time(Timestamp(31)), vec![4]),
        (after("a"), vec![2, 3, 4]),
        (after("c"), vec![4]),
    ] {
        let harness = three_events().await;
        let consumer = harness.consumer(from(start.clone())).await;
        harness.publish(&orders(), 1).await;
        assert_eq!(seqs(&consumer.arrived().await), expected, "{start:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_id_is_refused_and_creates_no_group() {
    let harness = three_events().await;
    let start = StartAt::AfterId(EventId::new("nothing").unwrap());
    let refusal = harness.try_subscribe(&orders(), from(start)).await.err().unwrap();
    assert_eq!(refusal.code, ErrorCode::UnknownId);
    assert_eq!(refusal.message, "orders holds no event nothing");
    // The group does not exist: the next subscription decides where it starts.
    let consumer = harness.consumer(from(StartAt::Earliest)).await;
    assert_eq!(seqs(&consumer.arrived().await), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn an_existing_group_continues_at_its_cursor() {
    let harness = three_events().await;
    let consumer = harness.consumer(at_most(2)).await;
    let delivered = consumer.arrived().await;
    consumer.ack(crate::harness::ids(&delivered)).await;
    drop(consumer);
    let harness = harness.restart();
    let consumer = harness.consumer(from(StartAt::Earliest)).await;
    assert_eq!(seqs(&consumer.arrived().await), [3]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_topic_can_be_subscribed_to() {
    let harness = Harness::new();
    let consumer = harness.consumer(from(StartAt::Latest)).await;
    assert!(consumer.next_within(Duration::from_secs(3600)).await.is_none());
    harness.publish(&orders(), 2).await;
    assert_eq!(seqs(&consumer.arrived().await), [1, 2]);
}

/// Acknowledges `count` events, and returns their `seq`s.
async fn consume(consumer: &Consumer, count: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let delivery = consumer.next().await;
        assert_eq!(delivery.attempt, 1);
        seen.push(delivery.event.seq.0);
        drop(consumer.subscription.ack(vec![delivery.event.id], None, None));
    }
    seen
}

async fn publish_singly(harness: &Harness, count: usize) {
    let connection = harness.bus.connect();
    for _ in 0..count {
        harness.try_publish(&connection, &orders(), vec![event("1")]).await.unwrap();
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn catching_up_and_following_leave_no_gap_and_no_duplicate() {
    let harness = Harness::new();
    harness.publish(&orders(), 3000).await;
    let consumer = harness.consumer(at_most(7)).await;
    let (seen, ()) = tokio::join!(consume(&consumer, 5000), publish_singly(&harness, 2000));
    assert_eq!(seen, (1..=5000).collect::<Vec<_>>());
    assert!(consumer.arrived().await.is_empty());
}

#[tokio::test]
async fn catching_up_and_following_leave_no_gap_and_no_duplicate_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::over(disk(folder.path()), unlimited());
    harness.publish(&orders(), 500).await;
    let consumer = harness.consumer(at_most(50)).await;
    let (seen, ()) = tokio::join!(consume(&consumer, 700), publish_singly(&harness, 200));
    assert_eq!(seen, (1..=700).collect::<Vec<_>>());
    harness.bus.close().await.unwrap();
}

/// Twenty events of 600 KB exceed the recent events in memory: a slow group has to read them back.
#[tokio::test(start_paused = true)]
async fn events_that_left_memory_are_read_back() {
    let harness = Harness::new();
    let options = SubscribeOptions { max_in_flight: Some(2), ..from(StartAt::Latest) };
    let consumer = harness.consumer(options).await;
    let connection = harness.bus.connect();
    for _ in 0..20 {
        let events = vec![large_event(600_000)];
        harness.try_publish(&connection, &orders(), events).await.unwrap();
    }
    assert_eq!(consume(&consumer, 20).await, (1..=20).collect::<Vec<_>>());
    assert!(consumer.arrived().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_group_gets_every_event() {
    let harness = Harness::new();
    let connection = harness.bus.connect();
    let mut groups = Vec::new();
    for name in ["billing", "shipping", "audit"] {
        let group = prombus_proto::Group::new(name).unwrap();
        let start = from(StartAt::Earliest);
        let joined = harness.bus.subscribe(&connection, &orders(), &group, start).await;
        groups.push(joined.unwrap().0);
    }
    harness.publish(&orders(), 30).await;
    crate::harness::settle().await;
    let mut taken = Vec::new();
    connection.delivery_queue.take(usize::MAX, &mut taken);
    for subscription in &groups {
        let own: Vec<_> = taken
            .iter()
            .filter(|delivery| delivery.group == *subscription.group())
            .map(|delivery| delivery.event.seq.0)
            .collect();
        assert_eq!(own, (1..=30).collect::<Vec<_>>());
    }
    assert_eq!(taken.len(), 90);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_has_the_stored_bytes() {
    let harness = Harness::new();
    let consumer = harness.consumer(from(StartAt::Earliest)).await;
    harness.publish(&orders(), 2).await;
    let live = consumer.arrived().await;
    drop(consumer);
    let harness = harness.restart();
    let consumer = harness.consumer(from(StartAt::Earliest)).await;
    let read_back = consumer.arrived().await;
    let stored = crate::harness::stored(harness.engine.as_ref(), &orders()).await;
    for deliveries in [live, read_back] {
        assert_eq!(deliveries.len(), 2);
        for (delivery, stored) in deliveries.iter().zip(&stored) {
            let mut json = Vec::new();
            delivery.event.write_json(&mut json);
            assert_eq!(json, stored.json);
            assert!(delivery.event.json_bytes() >= json.len());
        }
    }
}
