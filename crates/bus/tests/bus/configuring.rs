//! Topic settings changed at run time.

use prombus_bus::{Rate, Settings, TopicSettings};
use prombus_engine::{Batch, Durability, Expect, StateKey, StateOp};
use prombus_proto::ErrorCode;

use crate::harness::{Harness, disk, event, memory, named, orders, unlimited};

const fn rate(capacity: u64, refill_per_sec: u64) -> Rate {
    Rate { capacity, refill_per_sec }
}

fn limited() -> Settings {
    Settings { topic_rate: Some(rate(1000, 1000)), ..unlimited() }
}

fn own() -> TopicSettings {
    TopicSettings {
        durability: Some(Durability::Buffered),
        rate: Some(rate(3, 1)),
        retention_ms: None,
        retention_bytes: Some(1000),
    }
}

async fn passes(harness: &Harness, count: usize) -> bool {
    let events = (0..count).map(|_| event("1")).collect();
    harness.try_publish(&harness.bus.connect(), &orders(), events).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_takes_effect_immediately() {
    let harness = Harness::with(limited());
    assert!(passes(&harness, 500).await);
    harness.bus.configure_topic(&orders(), own()).await.unwrap();
    assert!(passes(&harness, 3).await);
    assert!(!passes(&harness, 1).await);
    harness.bus.configure_topic(&orders(), TopicSettings::default()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(passes(&harness, 500).await && !passes(&harness, 5).await);
}

#[tokio::test(start_paused = true)]
async fn retention_takes_effect_immediately() {
    let harness = Harness::new();
    harness.publish(&orders(), 100).await;
    harness.bus.configure_topic(&orders(), own()).await.unwrap();
    let bounds = harness.bus.bounds(&orders()).await.unwrap();
    assert!(bounds.count() < 100 && bounds.bytes <= 1000, "{bounds:?}");
    harness.bus.configure_topic(&orders(), TopicSettings::default()).await.unwrap();
    harness.publish(&orders(), 200).await;
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    assert_eq!(harness.bus.bounds(&orders()).await.unwrap().count(), bounds.count() + 200);
}

#[tokio::test(start_paused = true)]
async fn missing_settings_fall_back_to_the_configuration() {
    let configured = TopicSettings { retention_ms: Some(60_000), ..own() };
    let topics = [(orders(), configured)].into_iter().collect();
    let harness = Harness::with(Settings { topics, ..limited() });
    let own = TopicSettings { retention_bytes: Some(5000), ..TopicSettings::default() };
    harness.bus.configure_topic(&orders(), own).await.unwrap();
    let overview = harness.bus.topic(&orders()).await.unwrap();
    assert_eq!(overview.own, own);
    assert_eq!(overview.rules.durability, Durability::Buffered);
    assert_eq!(overview.rules.rate, Some(rate(3, 1)));
    assert_eq!(overview.rules.retention_ms, Some(60_000));
    assert_eq!(overview.rules.retention_bytes, Some(5000));
}

#[tokio::test]
async fn settings_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::over(disk(folder.path()), limited());
    harness.bus.configure_topic(&orders(), own()).await.unwrap();
    harness.bus.close().await.unwrap();
    let harness = harness.stop()(disk(folder.path()));
    harness.bus.load_topic_settings().await.unwrap();
    let overview = harness.bus.topic(&orders()).await.unwrap();
    assert_eq!(overview.own, own());
    assert!(passes(&harness, 3).await && !passes(&harness, 3).await);
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_newer_version_are_refused() {
    let engine = memory();
    let put = StateOp::Put {
        key: StateKey::new("topic/orders").unwrap(),
        value: (&br#"{"v":9}"#[..]).into(),
        expires_at: None,
        expect: Expect::Any,
    };
    let batch = Batch {
        events: vec![],
        expected_last: vec![],
        deleted_topics: vec![],
        state: vec![put],
        durability: Durability::Buffered,
    };
    engine.commit(batch).await.unwrap();
    let harness = Harness::over(engine, unlimited());
    let refusal = harness.bus.load_topic_settings().await.unwrap_err();
    assert!(
        refusal.message.contains("the settings of orders cannot be read: format version 9 "),
        "{refusal}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_topic_exists_once_it_is_published_to_or_configured() {
    let harness = Harness::new();
    assert!(harness.bus.topics().await.unwrap().is_empty());
    let refusal = harness.bus.topic(&orders()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::UnknownTopic);
    harness.publish(&named("payments"), 1).await;
    harness.bus.configure_topic(&orders(), TopicSettings::default()).await.unwrap();
    assert_eq!(harness.bus.topics().await.unwrap(), [orders(), named("payments")]);
    assert_eq!(harness.bus.topic(&orders()).await.unwrap().bounds.count(), 0);
    // A topic that is trimmed to nothing still exists.
    harness.engine.trim(&named("payments"), prombus_proto::Seq(2)).await.unwrap();
    assert_eq!(harness.bus.topic(&named("payments")).await.unwrap().bounds.count(), 0);
}
