//! Buffers of one kind share a budget, however many topics and connections there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use prombus_bus::{Memory, MemoryLimits, Settings, StartAt};
use prombus_engine::delegating::DelegatingEngine;
use prombus_engine::{CommitError, Engine, Page, ReadBudget, ReadError};
use prombus_proto::{Group, Seq, Topic};

use crate::exposition::Exposition;
use crate::harness::{
    Consumer, Harness, at_most, event, from, large_event, memory, named, orders, seqs, settle,
    unlimited,
};

const MIB: usize = 1 << 20;

fn harness(limits: MemoryLimits) -> Harness {
    Harness::with(Settings { memory: limits, ..unlimited() })
}

/// Returns a metric of the buffers of `kind`.
async fn buffers(harness: &Harness, metric: &str, kind: &str) -> usize {
    let metrics = Exposition::parse(&harness.bus.metrics_text().await.unwrap());
    let value = metrics.value(&format!("prombus_buffer_{metric}"), &[("kind", kind)]);
    format!("{value}").parse().unwrap()
}

async fn publish_to(harness: &Harness, topics: &[Topic], bytes: usize) {
    let connection = harness.bus.connect();
    for topic in topics {
        harness.try_publish(&connection, topic, vec![large_event(bytes)]).await.unwrap();
    }
}

/// Acknowledges `count` events one by one, and returns their `seq`s.
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

#[tokio::test(start_paused = true)]
async fn a_hundred_followed_topics_stay_within_the_budget_and_deliver_everything_in_order() {
    const EVENTS: usize = 40;
    let harness = harness(MemoryLimits { feeds: MIB, ..MemoryLimits::of_each(64 * MIB) });
    let topics: Vec<_> = (0..100).map(|number| named(&format!("topic-{number}"))).collect();
    let mut consumers = Vec::new();
    for topic in &topics {
        consumers.push(harness.try_subscribe(topic, at_most(2)).await.unwrap());
    }
    let mut seen = vec![Vec::new(); topics.len()];
    for round in 0..EVENTS {
        publish_to(&harness, &topics, 2000).await;
        assert!(buffers(&harness, "bytes", "feeds").await <= MIB);
        if round % 4 == 0 {
            // One in ten keeps up. The others read what has left memory.
            for index in (0..topics.len()).step_by(10) {
                let missing = round + 1 - seen[index].len();
                seen[index].extend(consume(&consumers[index], missing).await);
            }
        }
    }
    assert!(buffers(&harness, "bytes", "feeds").await > MIB / 2, "the budget is used");
    assert!(buffers(&harness, "refusals_total", "feeds").await > 0);
    for (consumer, mut seen) in consumers.iter().zip(seen) {
        seen.extend(consume(consumer, EVENTS - seen.len()).await);
        assert_eq!(seen, (1..=EVENTS as u64).collect::<Vec<_>>());
        assert!(consumer.arrived().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_keeps_events_only_while_it_has_followers() {
    let harness = harness(MemoryLimits::of_each(64 * MIB));
    harness.publish(&orders(), 10).await;
    assert_eq!(buffers(&harness, "bytes", "feeds").await, 0, "nobody follows");
    let consumer = harness.consumer(from(StartAt::Latest)).await;
    harness.publish(&orders(), 10).await;
    assert!(buffers(&harness, "bytes", "feeds").await > 0);
    assert_eq!(buffers(&harness, "limit_bytes", "feeds").await, 64 * MIB);
    let delivered = consumer.arrived().await;
    consumer.ack(crate::harness::ids(&delivered)).await;
    drop(consumer);
    settle().await;
    harness.publish(&orders(), 10).await;
    assert_eq!(buffers(&harness, "bytes", "feeds").await, 0, "nobody follows any more");
}

/// Small events cost more than their JSON.
#[tokio::test(start_paused = true)]
async fn the_overhead_of_each_event_counts() {
    let harness = harness(MemoryLimits::of_each(64 * MIB));
    let _consumer = harness.consumer(at_most(1)).await;
    for _ in 0..10 {
        let events = (0..1000).map(|_| event("1")).collect();
        harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    }
    let (per_event, json) = (buffers(&harness, "bytes", "feeds").await / 10_000, 90);
    assert!(per_event > json + 100 && per_event < json + 500, "{per_event} bytes per event");
}

/// An engine whose reads take time.
struct SlowReads(Arc<dyn Engine>);

#[async_trait]
impl DelegatingEngine for SlowReads {
    fn inner(&self) -> &dyn Engine {
        &*self.0
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.0.read(topic, from, budget).await
    }

    async fn close(&self) -> Result<(), CommitError> {
        self.0.close().await
    }
}

/// All groups read at the same time, and read further ahead the more their members take.
#[tokio::test(start_paused = true)]
async fn what_groups_read_ahead_shares_a_budget() {
    const GROUPS: usize = 40;
    let limits = MemoryLimits { read_ahead: MIB, ..MemoryLimits::of_each(64 * MIB) };
    let settings = Settings { memory: limits, ..unlimited() };
    let harness = Harness::over(Arc::new(SlowReads(memory())), settings);
    let events = (0..100).map(|_| large_event(8000)).collect();
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    let mut consumers = Vec::new();
    for number in 0..GROUPS {
        consumers.push(harness.consumer_of(&format!("group-{number}"), at_most(1)).await);
    }
    settle().await;
    let reserved = buffers(&harness, "bytes", "read_ahead").await;
    assert!(reserved > MIB / 2 && reserved <= MIB + GROUPS * Memory::MINIMUM, "{reserved}");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let in_use = buffers(&harness, "bytes", "read_ahead").await;
    assert_eq!(in_use, 0, "each group has read what its member takes");
    assert!(buffers(&harness, "refusals_total", "read_ahead").await > 0);
    for consumer in &consumers {
        assert_eq!(consume(consumer, 100).await, (1..=100).collect::<Vec<_>>());
    }
    drop(consumers);
    settle().await;
    assert_eq!(buffers(&harness, "bytes", "read_ahead").await, 0);
}

/// An engine that counts its reads.
struct CountingReads(Arc<dyn Engine>, AtomicUsize);

#[async_trait]
impl DelegatingEngine for CountingReads {
    fn inner(&self) -> &dyn Engine {
        &*self.0
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.read(topic, from, budget).await
    }

    async fn close(&self) -> Result<(), CommitError> {
        self.0.close().await
    }
}

/// Returns a harness with 100 events of 8 kB and with room for four groups that read ahead, and a function
/// that consumes all events as the group `busy` and returns how often that reads.
async fn backlog() -> (Harness, impl AsyncFn(&Harness) -> usize) {
    let limits = MemoryLimits { read_ahead: MIB, ..MemoryLimits::of_each(64 * MIB) };
    let engine = Arc::new(CountingReads(memory(), AtomicUsize::new(0)));
    let harness = Harness::over(engine.clone(), Settings { memory: limits, ..unlimited() });
    let events = (0..100).map(|_| large_event(8000)).collect();
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    let consume_all = async move |harness: &Harness| {
        let before = engine.1.load(Ordering::SeqCst);
        let consumer = harness.consumer_of("busy", at_most(50)).await;
        assert_eq!(consume(&consumer, 100).await, (1..=100).collect::<Vec<_>>());
        engine.1.load(Ordering::SeqCst) - before
    };
    (harness, consume_all)
}

#[tokio::test(start_paused = true)]
async fn groups_whose_members_take_nothing_leave_the_budget_to_others() {
    let (harness, consume_all) = backlog().await;
    let mut idle = Vec::new();
    for number in 0..300 {
        idle.push(harness.consumer_of(&format!("idle-{number}"), at_most(1)).await);
    }
    settle().await;
    let reads = consume_all(&harness).await;
    assert!(reads <= 15, "{reads} reads for 100 events");
}

/// They have read far ahead for members that were fast.
#[tokio::test(start_paused = true)]
async fn groups_give_back_what_their_members_stop_taking() {
    let (harness, consume_all) = backlog().await;
    let mut idle = Vec::new();
    for number in 0..50 {
        let consumer = harness.consumer_of(&format!("idle-{number}"), at_most(1)).await;
        // Different numbers, so that some stay behind whatever a read returns.
        let taken = 15 + number % 10;
        consume(&consumer, taken).await;
        idle.push((consumer, taken as u64));
        // Each is the only one that is active.
        settle().await;
    }
    assert!(buffers(&harness, "bytes", "read_ahead").await > MIB / 2);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let reads = consume_all(&harness).await;
    assert!(reads <= 15, "{reads} reads for 100 events");
    for (consumer, taken) in &idle {
        let rest: Vec<_> = (taken + 1..=100).collect();
        assert_eq!(consume(consumer, rest.len()).await, rest);
    }
}

/// All groups of a connection that does not read want to read at the same time.
#[tokio::test(start_paused = true)]
async fn groups_read_no_more_for_a_connection_than_its_queue_has_room_for() {
    const GROUPS: usize = 40;
    const QUEUE: usize = 64 << 10;
    const READ_AHEAD: usize = 256 << 10;
    let limits = MemoryLimits::of_each(64 * MIB);
    let settings = Settings { memory: limits, max_outbox_bytes: QUEUE, ..unlimited() };
    let harness = Harness::over(Arc::new(SlowReads(memory())), settings);
    let events = (0..100).map(|_| large_event(8000)).collect();
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    let connection = harness.bus.connect();
    let mut subscriptions = Vec::new();
    for number in 0..GROUPS {
        let group = Group::new(&format!("group-{number}")).unwrap();
        let joined = harness.bus.subscribe(&connection, &orders(), &group, at_most(1000)).await;
        subscriptions.push(joined.unwrap().0);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let in_use = buffers(&harness, "bytes", "read_ahead").await;
    assert!(in_use > 0 && in_use < 3 * READ_AHEAD, "{in_use}");
    // Nobody stalls, and nothing is lost.
    let mut delivered = 0;
    while delivered < GROUPS * 100 {
        let mut taken = Vec::new();
        connection.delivery_queue.take(usize::MAX, &mut taken);
        assert!(!taken.is_empty(), "stalled after {delivered} deliveries");
        delivered += taken.len();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(delivered, GROUPS * 100);
}

/// None of 200 connections reads.
#[tokio::test(start_paused = true)]
async fn delivery_queues_of_many_connections_share_a_budget() {
    const CONNECTIONS: usize = 200;
    const EVENT: usize = 2000;
    let harness = harness(MemoryLimits { deliveries: MIB, ..MemoryLimits::of_each(64 * MIB) });
    let events = (0..100).map(|_| large_event(EVENT)).collect();
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.unwrap();
    let mut consumers = Vec::new();
    for number in 0..CONNECTIONS {
        consumers.push(harness.consumer_of(&format!("group-{number}"), at_most(1000)).await);
    }
    settle().await;
    let in_use = buffers(&harness, "bytes", "deliveries").await;
    // The last event of each may exceed its share.
    let guaranteed = CONNECTIONS * (Memory::MINIMUM + 2 * EVENT);
    assert!(in_use > MIB && in_use <= MIB + guaranteed, "{in_use}");
    assert!(buffers(&harness, "refusals_total", "deliveries").await > 0);
    // Nobody stalls, and nothing is lost.
    for consumer in &consumers {
        let mut seen = Vec::new();
        while seen.len() < 100 {
            let arrived = consumer.arrived().await;
            assert!(!arrived.is_empty(), "stalled after {seen:?}");
            seen.extend(seqs(&arrived));
        }
        assert_eq!(seen, (1..=100).collect::<Vec<_>>());
    }
    assert_eq!(buffers(&harness, "bytes", "deliveries").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_gives_its_memory_back() {
    let harness = harness(MemoryLimits::of_each(64 * MIB));
    harness.publish(&orders(), 100).await;
    let consumer = harness.consumer(at_most(1000)).await;
    settle().await;
    assert!(buffers(&harness, "bytes", "deliveries").await > 0);
    drop(consumer);
    settle().await;
    assert_eq!(buffers(&harness, "bytes", "deliveries").await, 0);
}
