//! Retention rules from the configuration.

use std::collections::HashMap;
use std::time::Duration;

use prombus_bus::{Settings, TopicSettings};

use crate::harness::{Harness, named, orders, unlimited};

#[tokio::test(start_paused = true)]
async fn removes_events_only_from_topics_with_a_rule() {
    let own = TopicSettings { retention_bytes: Some(1000), ..TopicSettings::default() };
    let topics = HashMap::from([(orders(), own)]);
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
