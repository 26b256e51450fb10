//! Retention rules from the configuration.

use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{Settings, TopicSettings};

use prombus_engine::{Engine, Retention};

use crate::harness::{Harness, NOW, at_most, ids, memory, named, orders, unlimited};
use crate::watched_engine::WatchedEngine;

const A_PASS: Duration = Duration::from_secs(31);

fn keeps_bytes(retention_bytes: u64) -> TopicSettings {
    TopicSettings { retention_bytes: Some(retention_bytes), ..TopicSettings::default() }
}

/// Applies a rule without limits to orders, as a process whose clock is an hour ahead.
async fn rule_with_the_clock_ahead(engine: &dyn Engine) {
    let revision = NOW.0 + 3_600_000;
    engine.retain(&orders(), &Retention { revision, ..Retention::default() }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn continues_after_the_clock_was_ahead() {
    let engines: [Arc<dyn Engine>; 2] = [memory(), WatchedEngine::for_several(memory())];
    for engine in engines {
        rule_with_the_clock_ahead(engine.as_ref()).await;
        let topics = [(orders(), keeps_bytes(1000))].into_iter().collect();
        let harness = Harness::over(engine, Settings { topics, ..unlimited() });
        harness.publish(&orders(), 100).await;
        tokio::time::sleep(A_PASS).await;
        let kept = harness.engine.bounds(&orders()).await.unwrap();
        assert!(kept.bytes <= 1000, "{kept:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_takes_effect_after_the_clock_was_ahead() {
    let harness = Harness::new();
    harness.publish(&orders(), 100).await;
    rule_with_the_clock_ahead(harness.engine.as_ref()).await;
    harness.bus.configure_topic(&orders(), keeps_bytes(1000)).await.unwrap();
    let kept = harness.engine.bounds(&orders()).await.unwrap();
    assert!(kept.bytes <= 1000, "{kept:?}");
    // A pass that is still running with the rule before the change drops nothing.
    let slow = Retention { max_bytes: Some(0), max_age_ms: None, revision: NOW.0 + 3_600_000 };
    harness.engine.retain(&orders(), &slow).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_gateway_with_older_settings_takes_the_newer_ones_before_it_drops_events() {
    let store = WatchedEngine::for_several(memory());
    let topics = [(orders(), keeps_bytes(1))].into_iter().collect();
    let settings = Settings { topics, ..unlimited() };
    let harness = Harness::numbered(1, store.clone(), settings);
    let other = Harness::numbered(2, store, unlimited());
    rule_with_the_clock_ahead(other.engine.as_ref()).await;
    other.bus.configure_topic(&orders(), keeps_bytes(1 << 20)).await.unwrap();
    other.publish(&orders(), 100).await;
    tokio::time::sleep(4 * A_PASS).await;
    assert_eq!(harness.engine.bounds(&orders()).await.unwrap().count(), 100);
}

#[tokio::test(start_paused = true)]
async fn events_that_a_group_loses_are_counted() {
    let harness = Harness::new();
    harness.publish(&orders(), 10).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    consumer.ack(ids(&delivered[..3])).await;
    consumer.ack(ids(&delivered[5..6])).await;
    let metric = "prombus_events_lost_to_retention_total{group=\"billing\",topic=\"orders\"}";
    let lost = async || {
        let text = harness.bus.metrics_text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with(metric)).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next().unwrap().parse::<u64>().ok())
    };
    assert_eq!(lost().await, Some(0));
    harness.bus.configure_topic(&orders(), keeps_bytes(1)).await.unwrap();
    assert_eq!(lost().await, Some(6));
    // Each event is counted once, although the group has not moved.
    harness.publish(&orders(), 2).await;
    tokio::time::sleep(A_PASS).await;
    assert_eq!(lost().await, Some(8));
}

#[tokio::test(start_paused = true)]
async fn removes_events_only_from_topics_with_a_rule() {
    let own = TopicSettings { retention_bytes: Some(1000), ..TopicSettings::default() };
    let topics = [(orders(), own)].into_iter().collect();
    let harness = Harness::with(Settings { topics, ..unlimited() });
    for topic in [orders(), named("payments")] {
        harness.publish(&topic, 100).await;
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    let kept = harness.engine.bounds(&orders()).await.unwrap();
    assert!(kept.count() < 100 && kept.bytes <= 1000, "{kept:?}");
    assert_eq!(kept.last().0, 100, "positions are kept");
    assert_eq!(harness.engine.bounds(&named("payments")).await.unwrap().count(), 100);
}
