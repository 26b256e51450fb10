//! A connection that does not read costs no more than its delivery queue.

use std::time::Duration;

use prombus_bus::Settings;

use crate::harness::{Harness, at_most, large_event, orders, seqs, settle, unlimited};

const LIMIT: usize = 100_000;

/// A harness with `count` events of about 10 KB each.
async fn harness_with(count: usize) -> Harness {
    let harness = Harness::with(Settings { max_outbox_bytes: LIMIT, ..unlimited() });
    let events = (0..count).map(|_| large_event(10_000)).collect();
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    harness
}

#[tokio::test(start_paused = true)]
async fn delivery_stops_at_the_limit_and_continues_when_the_queue_is_drained() {
    let harness = harness_with(100).await;
    let consumer = harness.consumer(at_most(1000)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut waiting = Vec::new();
    consumer.connection.delivery_queue.take(usize::MAX, &mut waiting);
    let bytes: usize = waiting.iter().map(|delivery| delivery.event.json_bytes()).sum();
    assert!(bytes > LIMIT - 11_000 && bytes < LIMIT + 11_000, "{bytes}");
    // Without any acknowledgement: draining is enough.
    let mut seen = seqs(&waiting);
    while let Some(delivery) = consumer.next_within(Duration::from_secs(1)).await {
        seen.push(delivery.event.seq.0);
    }
    assert_eq!(seen, (1..=100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn an_event_above_the_limit_is_delivered_alone() {
    let harness = Harness::with(Settings { max_outbox_bytes: 1000, ..unlimited() });
    let events = (0..3).map(|_| large_event(5000)).collect();
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    let consumer = harness.consumer(at_most(10)).await;
    for expected in 1..=3 {
        assert_eq!(seqs(&consumer.arrived().await), [expected]);
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_leaves_events_to_other_members() {
    let harness = harness_with(100).await;
    let stuck = harness.consumer(at_most(1000)).await;
    settle().await;
    let reader = harness.consumer(at_most(1000)).await;
    let mut count = 0;
    while let Some(delivery) = reader.next_within(Duration::from_secs(1)).await {
        drop(reader.subscription.ack(vec![delivery.event.id], None, None));
        count += 1;
    }
    let mut waiting = Vec::new();
    stuck.connection.delivery_queue.take(usize::MAX, &mut waiting);
    assert!(waiting.len() <= 11, "{}", waiting.len());
    assert_eq!(count + waiting.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn two_groups_share_one_queue() {
    let harness = harness_with(50).await;
    let connection = harness.bus.connect();
    let mut subscriptions = Vec::new();
    for name in ["billing", "shipping"] {
        let group = prombus_proto::Group::new(name).unwrap();
        let joined = harness.bus.subscribe(&connection, &orders(), &group, at_most(1000)).await;
        subscriptions.push(joined.unwrap());
    }
    let mut taken = Vec::new();
    for _ in 0..200 {
        settle().await;
        connection.delivery_queue.take(30_000, &mut taken);
    }
    assert_eq!(taken.len(), 100, "neither group starves");
}
