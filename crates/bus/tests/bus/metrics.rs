//! Every metric moves by exactly what happened.

use std::collections::BTreeSet;
use std::time::Duration;

use prombus_bus::{
    NdjsonStage, PlaceLimit, PublishBatch, Rate, Settings, StartAt, SubscribeOptions,
    TopicSettings, Transport,
};
use prombus_engine::{Durability, Faults, FaultyEngine};
use prombus_proto::{EventId, NewEvent};

use crate::exposition::Exposition;
use crate::harness::{
    Harness, at_most, disk, event, from, ids, memory, named, orders, settle, unlimited,
};

const ORDERS: [(&str, &str); 1] = [("topic", "orders")];
const BILLING: [(&str, &str); 2] = [("group", "billing"), ("topic", "orders")];
const OTHER: [(&str, &str); 2] = [("group", "other"), ("topic", "other")];

impl Harness {
    async fn metrics(&self) -> Exposition {
        Exposition::parse(&self.bus.metrics_text().await.unwrap())
    }
}

fn with_id(id: &str) -> NewEvent {
    NewEvent { id: Some(EventId::new(id).unwrap()), ..event("1") }
}

fn attempts(max_attempts: u32) -> SubscribeOptions {
    SubscribeOptions { max_attempts: Some(max_attempts), ..from(StartAt::Earliest) }
}

#[tokio::test(start_paused = true)]
async fn publishes_and_duplicates_are_counted_by_topic() {
    let harness = Harness::new();
    let publisher = harness.bus.connect();
    harness.publish(&orders(), 3).await;
    let same = || vec![with_id("a"), with_id("b"), with_id("a")];
    harness.try_publish(&publisher, &orders(), same()).await.unwrap();
    harness.try_publish(&publisher, &named("payments"), same()).await.unwrap();
    harness.try_publish(&publisher, &orders(), same()).await.unwrap();
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_published_total", &ORDERS), 5.0);
    assert_eq!(metrics.value("prombus_duplicates_total", &ORDERS), 4.0);
    let payments = [("topic", "payments")];
    assert_eq!(metrics.value("prombus_events_published_total", &payments), 2.0);
    assert_eq!(metrics.value("prombus_duplicates_total", &payments), 1.0);
    assert_eq!(metrics.value("prombus_topics", &[]), 2.0);
    // The publisher of a duplicate waited as well.
    assert_eq!(metrics.count("prombus_publish_to_commit_seconds"), 12.0);
    assert_eq!(metrics.count("prombus_commit_batch_events"), 4.0);
    assert_eq!(metrics.sum("prombus_commit_batch_events"), 12.0);
}

#[tokio::test(start_paused = true)]
async fn a_group_counts_what_it_does_and_its_gauges_return_to_zero() {
    let harness = Harness::new();
    let consumer = harness.consumer(attempts(2)).await;
    harness.publish(&orders(), 5).await;
    let delivered = consumer.arrived().await;
    consumer.ack(ids(&delivered[1..3])).await;
    assert_eq!(consumer.ack(ids(&delivered[1..3])).await.stale, [0, 1]);
    consumer.nack(&delivered[0], Some(Duration::ZERO)).await;
    let again = consumer.next().await;
    assert_eq!((again.event.seq.0, again.attempt), (1, 2));
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_delivered_total", &BILLING), 6.0);
    assert_eq!(metrics.value("prombus_events_acked_total", &BILLING), 2.0);
    assert_eq!(metrics.value("prombus_events_nacked_total", &BILLING), 1.0);
    assert_eq!(metrics.value("prombus_events_dead_lettered_total", &BILLING), 0.0);
    assert_eq!(metrics.value("prombus_inflight", &BILLING), 3.0);
    assert_eq!(metrics.value("prombus_lag_events", &BILLING), 3.0);
    assert_eq!(metrics.count("prombus_deliver_to_ack_seconds"), 2.0);
    // Every event counts once, however often it was delivered.
    assert_eq!(metrics.count("prombus_publish_to_deliver_seconds"), 5.0);

    consumer.nack(&again, None).await;
    consumer.ack(ids(&delivered[3..])).await;
    settle().await;
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_acked_total", &BILLING), 4.0);
    assert_eq!(metrics.value("prombus_events_nacked_total", &BILLING), 2.0);
    assert_eq!(metrics.value("prombus_events_dead_lettered_total", &BILLING), 1.0);
    let letters = [("topic", "dlq.orders")];
    assert_eq!(metrics.value("prombus_events_published_total", &letters), 1.0);
    assert_eq!(metrics.value("prombus_inflight", &BILLING), 0.0);
    assert_eq!(metrics.value("prombus_lag_events", &BILLING), 0.0);
    assert_eq!(metrics.count("prombus_deliver_to_ack_seconds"), 4.0);
}

/// The test's clock decides how long things take.
#[tokio::test(start_paused = true)]
async fn histograms_observe_the_elapsed_time() {
    let harness = Harness::new();
    let consumer = harness.consumer(attempts(5)).await;
    let batch = harness.batch(&harness.bus.connect(), &orders(), vec![event("1")]).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    batch.submit(&harness.bus).await.unwrap().stored().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let delivery = consumer.next().await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    consumer.ack(vec![delivery.event.id]).await;
    let metrics = harness.metrics().await;
    assert_eq!(metrics.sum("prombus_publish_to_commit_seconds"), 1.0);
    assert_eq!(metrics.sum("prombus_publish_to_deliver_seconds"), 3.0);
    // It was leased as soon as it was stored.
    assert_eq!(metrics.sum("prombus_deliver_to_ack_seconds"), 6.0);
}

#[tokio::test(start_paused = true)]
async fn events_published_with_an_ack_are_counted() {
    let harness = Harness::new();
    let consumer = harness.consumer(attempts(5)).await;
    harness.publish(&orders(), 1).await;
    let delivery = consumer.next().await;
    let more = vec![(orders(), event("2")), (named("payments"), event("3"))];
    let mut batch = PublishBatch::new();
    batch.push_mixed(&harness.bus, &consumer.connection, more).unwrap();
    let id = vec![delivery.event.id.clone()];
    consumer.subscription.ack(id, None, Some(batch)).await.unwrap().unwrap();
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_published_total", &ORDERS), 2.0);
    assert_eq!(metrics.value("prombus_events_published_total", &[("topic", "payments")]), 1.0);
    assert_eq!(metrics.count("prombus_publish_to_commit_seconds"), 3.0);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_delivery_is_not_counted() {
    let harness = Harness::new();
    let consumer = harness.consumer(at_most(10)).await;
    harness.publish(&orders(), 4).await;
    settle().await;
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_delivered_total", &BILLING), 0.0);
    assert_eq!(metrics.value("prombus_inflight", &BILLING), 4.0);
    drop(consumer);
    settle().await;
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_delivered_total", &BILLING), 0.0);
    assert_eq!(metrics.value("prombus_inflight", &BILLING), 0.0);
    assert_eq!(metrics.value("prombus_lag_events", &BILLING), 4.0);
}

#[tokio::test(start_paused = true)]
async fn an_ack_counts_once_it_is_stored() {
    let faults = Faults::none();
    let engine = std::sync::Arc::new(FaultyEngine::new(memory(), faults.clone()));
    let harness = Harness::over(engine, unlimited());
    let consumer = harness.consumer(attempts(5)).await;
    harness.publish(&orders(), 1).await;
    let delivery = consumer.next().await;
    settle().await;
    faults.fail_commits_before(1);
    consumer
        .subscription
        .ack(ids(std::slice::from_ref(&delivery)), None, None)
        .await
        .unwrap()
        .unwrap_err();
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_acked_total", &BILLING), 0.0);
    assert_eq!(metrics.count("prombus_deliver_to_ack_seconds"), 0.0);
    assert_eq!(metrics.value("prombus_inflight", &BILLING), 1.0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    consumer.ack(ids(&[delivery])).await;
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_acked_total", &BILLING), 1.0);
    assert_eq!(metrics.count("prombus_deliver_to_ack_seconds"), 1.0);
}

/// Groups are found by their cursors, even without a subscription since the start.
#[tokio::test(start_paused = true)]
async fn after_a_restart_lag_is_known_and_stored_events_have_no_publish_time() {
    let harness = Harness::new();
    harness.publish(&orders(), 10).await;
    let consumer = harness.consumer(attempts(5)).await;
    let delivered = consumer.arrived().await;
    consumer.ack([&delivered[0], &delivered[4]].map(|one| one.event.id.clone()).into()).await;
    drop(consumer);
    settle().await;
    let harness = harness.restart();
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_lag_events", &BILLING), 8.0);
    assert_eq!(metrics.series("prombus_inflight"), []);
    let consumer = harness.consumer(attempts(5)).await;
    assert_eq!(consumer.arrived().await.len(), 8);
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_delivered_total", &BILLING), 8.0);
    assert_eq!(metrics.count("prombus_publish_to_deliver_seconds"), 0.0);
    // Trimmed events do not count as lag.
    harness.engine.trim(&orders(), prombus_proto::Seq(9)).await.unwrap();
    assert_eq!(harness.metrics().await.value("prombus_lag_events", &BILLING), 2.0);
}

#[tokio::test(start_paused = true)]
async fn rate_limited_publishes_are_counted_by_scope() {
    let rate = |capacity| Some(Rate { capacity, refill_per_sec: 1 });
    let settings = Settings { connection_rate: rate(10), topic_rate: rate(15), ..unlimited() };
    let harness = Harness::with(settings);
    let many = |count| (0..count).map(|_| event("1")).collect::<Vec<_>>();
    let (one, two) = (harness.bus.connect(), harness.bus.connect());
    harness.try_publish(&one, &orders(), many(10)).await.unwrap();
    for _ in 0..3 {
        harness.try_publish(&one, &orders(), many(1)).await.unwrap_err();
    }
    harness.try_publish(&two, &orders(), many(10)).await.unwrap_err();
    let metrics = harness.metrics().await;
    let limited = |scope| metrics.value("prombus_events_rate_limited_total", &[("scope", scope)]);
    assert_eq!((limited("connection"), limited("topic")), (3.0, 10.0));
    assert_eq!(metrics.value("prombus_events_published_total", &ORDERS), 10.0);
}

#[tokio::test]
async fn fsyncs_are_observed_on_the_disk_engine() {
    let folder = tempfile::tempdir().unwrap();
    let quick =
        TopicSettings { durability: Some(Durability::Buffered), ..TopicSettings::default() };
    let topics = [(named("quick"), quick)].into_iter().collect();
    let harness = Harness::over(disk(folder.path()), Settings { topics, ..unlimited() });
    harness.publish(&named("quick"), 3).await;
    assert_eq!(harness.metrics().await.count("prombus_fsync_seconds"), 0.0);
    harness.publish(&orders(), 1).await;
    harness.publish(&orders(), 2).await;
    let metrics = harness.metrics().await;
    assert_eq!(metrics.count("prombus_fsync_seconds"), 2.0);
    assert!(metrics.sum("prombus_fsync_seconds") > 0.0);
    assert_eq!(metrics.count("prombus_commit_batch_events"), 3.0);
    harness.bus.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn connections_and_bytes_are_counted_by_transport() {
    let harness = Harness::new();
    let counted = harness.bus.metrics();
    let open = [Transport::Ws, Transport::Ws, Transport::Http].map(|by| counted.connection(by));
    counted.traffic(Transport::Ws).received(10);
    counted.traffic(Transport::Ws).received(5);
    counted.traffic(Transport::Http).sent(7);
    counted.connection_refused(PlaceLimit::PerAddress);
    let memory = counted.ndjson_memory(NdjsonStage::Waiting);
    memory.add(9);
    memory.sub(4);
    let (ws, http) = ([("transport", "ws")], [("transport", "http")]);
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_connections", &ws), 2.0);
    assert_eq!(metrics.value("prombus_connections", &http), 1.0);
    let refused = |limit| metrics.value("prombus_connections_refused_total", &[("limit", limit)]);
    assert_eq!((refused("address"), refused("total")), (1.0, 0.0));
    let held = |stage| metrics.value("prombus_ndjson_memory_bytes", &[("stage", stage)]);
    assert_eq!((held("receiving"), held("waiting"), memory.get()), (0.0, 5.0, 5));
    assert_eq!(metrics.value("prombus_received_bytes_total", &ws), 15.0);
    assert_eq!(metrics.value("prombus_sent_bytes_total", &http), 7.0);
    assert_eq!(metrics.value("prombus_received_bytes_total", &http), 0.0);
    drop(open);
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_connections", &ws), 0.0);
    assert_eq!(metrics.value("prombus_connections", &http), 0.0);
}

#[tokio::test(start_paused = true)]
async fn the_first_thousand_topics_have_their_own_series() {
    let harness = Harness::new();
    // Reading a topic takes no series.
    drop(harness.bus.topic_limit(&named("never-published")));
    for round in 1..=2 {
        for number in 0..1500 {
            harness.publish(&named(&format!("t{number}")), round).await;
        }
    }
    let metrics = harness.metrics().await;
    let published = metrics.series("prombus_events_published_total");
    assert_eq!(published.len(), 1001);
    assert_eq!(metrics.series("prombus_duplicates_total").len(), 1001);
    assert_eq!(published.iter().map(|(_, value)| value).sum::<f64>(), 4500.0);
    assert_eq!(metrics.value("prombus_events_published_total", &[("topic", "other")]), 1500.0);
    assert_eq!(metrics.value("prombus_events_published_total", &[("topic", "t999")]), 3.0);
    assert_eq!(metrics.value("prombus_topics", &[]), 1500.0);
}

#[tokio::test(start_paused = true)]
async fn the_first_two_thousand_groups_have_their_own_series() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let mut consumers = Vec::new();
    for number in 0..2050 {
        consumers.push(harness.consumer_of(&format!("g{number}"), from(StartAt::Earliest)).await);
    }
    settle().await;
    let mut taken = Vec::new();
    consumers
        .iter()
        .for_each(|consumer| consumer.connection.delivery_queue.take(usize::MAX, &mut taken));
    assert_eq!(taken.len(), 2050);
    let metrics = harness.metrics().await;
    for family in ["prombus_events_delivered_total", "prombus_inflight", "prombus_lag_events"] {
        let series = metrics.series(family);
        assert_eq!(series.len(), 2001, "{family}");
        assert_eq!(series.iter().map(|(_, value)| value).sum::<f64>(), 2050.0, "{family}");
        assert_eq!(metrics.value(family, &OTHER), 50.0, "{family}");
    }
    for (consumer, delivery) in consumers.iter().zip(&taken) {
        consumer
            .subscription
            .ack(vec![delivery.event.id.clone()], None, None)
            .await
            .unwrap()
            .unwrap();
    }
    settle().await;
    let metrics = harness.metrics().await;
    assert_eq!(metrics.value("prombus_events_acked_total", &OTHER), 50.0);
    for family in ["prombus_inflight", "prombus_lag_events"] {
        assert!(metrics.series(family).iter().all(|(_, value)| *value == 0.0), "{family}");
    }
}

/// Compares name, kind and labels of every family in the documentation and in the text.
#[tokio::test]
async fn the_documentation_lists_every_metric() {
    const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");
    // The engine that knows most about itself.
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::over(disk(folder.path()), unlimited());
    let consumer = harness.try_subscribe(&orders(), from(StartAt::Earliest)).await.unwrap();
    harness.publish(&orders(), 1).await;
    let metrics = harness.metrics().await;
    let seen: BTreeSet<_> = metrics
        .names()
        .into_iter()
        .map(|name| {
            let labels: BTreeSet<_> = metrics.label_names(name).into_iter().collect();
            (name, metrics.kind(name), labels)
        })
        .collect();
    let is_row = |line: &&str| line.starts_with("| `prombus_") || line.starts_with("| `process_");
    let rows = DOCUMENT.lines().filter(is_row);
    let written: BTreeSet<_> = rows
        .map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let words = |cell: &'static str| cell.split('`').skip(1).step_by(2);
            let name = words(cells[0]).next().unwrap();
            (name, cells[1].to_owned(), words(cells[2]).collect::<BTreeSet<_>>())
        })
        .collect();
    assert_eq!(written, seen);
    drop(consumer);
    harness.bus.close().await.unwrap();
}

/// The test's clock decides how old events are.
#[tokio::test(start_paused = true)]
async fn the_oldest_unacknowledged_event_ages_from_its_first_delivery() {
    const AGE: &str = "prombus_oldest_unacked_seconds";
    let harness = Harness::new();
    let consumer = harness.consumer(attempts(5)).await;
    let age = async || harness.metrics().await.value(AGE, &BILLING);
    let later = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
    assert_eq!(age().await, 0.0);
    harness.publish(&orders(), 1).await;
    let first = consumer.next().await;
    later(3).await;
    harness.publish(&orders(), 1).await;
    let second = consumer.next().await;
    later(2).await;
    assert_eq!(age().await, 5.0);
    // Neither a back-off nor a redelivery makes it younger.
    consumer.nack(&first, Some(Duration::from_secs(4))).await;
    later(3).await;
    assert_eq!(age().await, 8.0);
    later(2).await;
    let again = consumer.next().await;
    assert_eq!((again.event.seq, again.attempt), (first.event.seq, 2));
    assert_eq!(age().await, 10.0);
    consumer.ack(ids(&[again])).await;
    settle().await;
    // Settling takes a millisecond.
    assert!((7.0..7.1).contains(&age().await), "the second event is the oldest now");
    consumer.ack(ids(&[second])).await;
    settle().await;
    assert_eq!(age().await, 0.0);
    drop(consumer);
    settle().await;
    assert_eq!(harness.metrics().await.series(AGE), []);
}

/// After a restart, the age counts from when the group was loaded.
#[tokio::test(start_paused = true)]
async fn after_a_restart_delivered_events_age_from_the_start_of_the_group() {
    const AGE: &str = "prombus_oldest_unacked_seconds";
    let harness = Harness::new();
    let consumer = harness.consumer(attempts(5)).await;
    harness.publish(&orders(), 1).await;
    consumer.next().await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    drop(consumer);
    settle().await;
    let harness = harness.restart();
    let consumer = harness.consumer(attempts(5)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(harness.metrics().await.value(AGE, &BILLING), 2.0);
    drop(consumer);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_cannot_tell_has_no_series() {
    let metrics = Harness::new().metrics().await;
    assert_eq!(metrics.value("prombus_store_writable", &[]), 1.0);
    let unknown =
        ["prombus_store_bytes", "prombus_wal_backlog_bytes", "prombus_checkpoint_seconds"];
    for family in unknown {
        assert!(!metrics.names().contains(&family), "{family}");
    }
}
