//! How many topics and groups may be created.

use std::sync::Arc;

use prombus_bus::{
    CensusLimits, PublishBatch, Refusal, Settings, StartAt, Subscription, TopicSettings,
};
use prombus_engine::{Engine, Faults, FaultyEngine};
use prombus_proto::{ErrorCode, Group, NewEvent, Topic};

use crate::harness::{Harness, event, from, memory, named, orders, settle, unlimited};

fn at_most(topics: usize, groups_per_topic: usize) -> Settings {
    Settings { max_counts: Some(CensusLimits { topics, groups_per_topic }), ..unlimited() }
}

async fn counted(engine: Arc<dyn Engine>, settings: Settings) -> Harness {
    let harness = Harness::over(engine, settings);
    start(&harness).await;
    harness
}

/// What the server does when it starts.
async fn start(harness: &Harness) {
    harness.bus.load_topic_settings().await.unwrap();
    harness.bus.count_topics_and_groups().await.unwrap();
}

async fn publish(harness: &Harness, topic: &str) -> Result<(), Refusal> {
    let connection = harness.bus.connect();
    harness.try_publish(&connection, &named(topic), vec![event("1")]).await.map(drop)
}

async fn subscribe(harness: &Harness, topic: &str, group: &str) -> Result<Subscription, Refusal> {
    let (topic, group) = (named(topic), Group::new(group).unwrap());
    let options = from(StartAt::Earliest);
    let joined = harness.bus.subscribe(&harness.bus.connect(), &topic, &group, options).await;
    joined.map(|(subscription, _)| subscription)
}

fn code<T>(result: Result<T, Refusal>) -> Option<ErrorCode> {
    result.err().map(|refusal| refusal.code)
}

const EXCEEDED: Option<ErrorCode> = Some(ErrorCode::LimitExceeded);

#[tokio::test(start_paused = true)]
async fn topics_are_limited_also_after_a_restart() {
    let harness = counted(memory(), at_most(3, 10)).await;
    publish(&harness, "a").await.unwrap();
    publish(&harness, "b").await.unwrap();
    harness.bus.configure_topic(&named("c"), TopicSettings::default()).await.unwrap();
    let harness = harness.restart();
    start(&harness).await;
    let refusal = publish(&harness, "d").await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::LimitExceeded);
    assert_eq!(
        refusal.message,
        "there are as many topics as the server allows: limits.max_topics is 3"
    );
    let own = TopicSettings::default();
    assert_eq!(code(harness.bus.configure_topic(&named("d"), own).await), EXCEEDED);
    assert_eq!(code(subscribe(&harness, "d", "g").await), EXCEEDED);
    for known in ["a", "b", "c"] {
        publish(&harness, known).await.unwrap();
    }
    harness.bus.configure_topic(&named("a"), own).await.unwrap();
    assert_eq!(harness.bus.topics().await.unwrap(), ["a", "b", "c"].map(named));
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_several_new_topics_counts_all_of_them() {
    let harness = counted(memory(), at_most(3, 10)).await;
    publish(&harness, "a").await.unwrap();
    let connection = harness.bus.connect();
    let mixed = |topics: &[&str]| -> Vec<(Topic, NewEvent)> {
        topics.iter().map(|topic| (named(topic), event("1"))).collect()
    };
    let mut batch = PublishBatch::new();
    let refused = batch.push_mixed(&harness.bus, &connection, mixed(&["b", "c", "a", "d"]));
    assert_eq!(code(refused), EXCEEDED);
    batch.push_mixed(&harness.bus, &connection, mixed(&["b", "c", "a", "b"])).unwrap();
    // The room is taken as long as the batch may be stored.
    assert_eq!(code(publish(&harness, "d").await), EXCEEDED);
    drop(batch);
    publish(&harness, "d").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_not_created_takes_no_room() {
    let faults = Faults::none();
    let engine = Arc::new(FaultyEngine::new(memory(), faults.clone()));
    let harness = counted(engine, at_most(1, 1)).await;
    for topic in ["a", "b", "c"] {
        faults.fail_commits_before(1);
        assert_eq!(code(publish(&harness, topic).await), Some(ErrorCode::StorageUnavailable));
        faults.fail_commits_before(1);
        let refused = subscribe(&harness, topic, "g").await;
        assert_eq!(code(refused), Some(ErrorCode::StorageUnavailable));
    }
    publish(&harness, "d").await.unwrap();
    assert_eq!(code(publish(&harness, "a").await), EXCEEDED);
}

#[tokio::test(start_paused = true)]
async fn groups_are_limited_per_topic_also_after_a_restart() {
    let harness = counted(memory(), at_most(10, 2)).await;
    for topic in ["a", "b"] {
        for group in ["g", "h"] {
            drop(subscribe(&harness, topic, group).await.unwrap());
        }
    }
    let harness = harness.restart();
    start(&harness).await;
    let refusal = subscribe(&harness, "a", "i").await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::LimitExceeded);
    assert_eq!(
        refusal.message,
        "a has as many groups as a topic may have: limits.max_groups_per_topic is 2"
    );
    for group in ["g", "h"] {
        drop(subscribe(&harness, "a", group).await.unwrap());
    }
    subscribe(&harness, "c", "i").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_group_leaves_nothing_behind() {
    let harness = counted(memory(), at_most(1, 1)).await;
    publish(&harness, "a").await.unwrap();
    let known = subscribe(&harness, "a", "known").await.unwrap();
    for (topic, group) in [("a", "surplus"), ("b", "known")] {
        assert_eq!(code(subscribe(&harness, topic, group).await), EXCEEDED);
        settle().await;
        let (topic, group) = (named(topic), Group::new(group).unwrap());
        assert!(harness.bus.describe_group(&topic, &group).await.is_none());
    }
    assert!(harness.bus.topic_limit(&named("b")).is_none());
    let metrics = harness.bus.metrics_text().await.unwrap();
    assert!(metrics.contains("group=\"known\"") && !metrics.contains("surplus"), "{metrics}");
    assert!(!metrics.contains("topic=\"b\""), "{metrics}");
    drop(known);
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_stored_whatever_the_limit() {
    let harness = counted(memory(), at_most(1, 1)).await;
    harness.publish(&orders(), 1).await;
    let options =
        prombus_bus::SubscribeOptions { max_attempts: Some(1), ..from(StartAt::Earliest) };
    let consumer = harness.consumer(options).await;
    let delivery = consumer.next().await;
    consumer.nack(&delivery, None).await;
    crate::harness::settle().await;
    assert_eq!(harness.dead_letters().await.len(), 1);
    // It counts nevertheless, and exists: anybody may publish to it.
    publish(&harness, "dlq.orders").await.unwrap();
    assert_eq!(code(publish(&harness, "other").await), EXCEEDED);
}

#[tokio::test(start_paused = true)]
async fn refused_names_leave_nothing_behind() {
    let harness = counted(memory(), at_most(1, 1)).await;
    publish(&harness, "a").await.unwrap();
    for number in 0..3000 {
        let name = format!("made-up-{number}");
        assert_eq!(code(publish(&harness, &name).await), EXCEEDED);
        assert_eq!(code(subscribe(&harness, &name, "g").await), EXCEEDED);
        assert!(harness.bus.topic_limit(&named(&name)).is_none(), "it is not in use");
    }
    let metrics = harness.bus.metrics_text().await.unwrap();
    assert!(!metrics.contains("made-up"), "no series either");
}
