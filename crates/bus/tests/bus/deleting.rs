//! Deleting and purging topics.

use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{
    CensusLimits, ConfiguredTopics, Followed, Purge, Purged, ReadBudget, Settings, StartAt,
    TopicSettings,
};
use prombus_engine::{Durability, Engine, MemoryEngine};
use prombus_proto::frame::EndReason;
use prombus_proto::{Clock, ErrorCode, ManualClock, NamePattern, Seq, Timestamp};

use crate::harness::{
    Harness, NOW, at_most, event, ids, memory, named, orders, seqs, settle, unlimited,
};
use crate::watched_engine::WatchedEngine;

/// Long enough for every gateway to see what another one has deleted.
const A_LOOK: Duration = Duration::from_millis(1100);

/// The keys that the keyed state has about a topic whose name contains `name`.
async fn state_of(engine: &dyn Engine, name: &str) -> Vec<String> {
    let all = engine.scan(b"", None, usize::MAX).await.unwrap();
    let keys = all.iter().map(|entry| String::from_utf8_lossy(entry.key.as_bytes()).into_owned());
    keys.filter(|key| key.contains(name)).collect()
}

fn retained_for(retention_ms: u64) -> TopicSettings {
    TopicSettings { retention_ms: Some(retention_ms), ..TopicSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_leaves_nothing_behind() {
    let harness = Harness::new();
    let bus = &harness.bus;
    let mut consumers = Vec::new();
    for topic in [orders(), named("orders.more")] {
        let options = prombus_bus::SubscribeOptions { max_attempts: Some(3), ..at_most(10) };
        let consumer = harness.try_subscribe(&topic, options).await.unwrap();
        bus.configure_topic(&topic, retained_for(1000)).await.unwrap();
        harness.publish(&topic, 3).await;
        let delivered = consumer.arrived().await;
        let until = Some(NOW.plus_ms(1_000_000));
        consumer.subscription.ack(ids(&delivered), until, None).await.unwrap().unwrap();
        consumers.push(consumer);
    }
    let engine = harness.engine.as_ref();
    let all = state_of(engine, "orders").await;
    // A cursor, properties, settings and three marks each.
    assert_eq!(all.len(), 12, "{all:?}");
    bus.delete_topic(&orders()).await.unwrap();
    let left = state_of(engine, "orders").await;
    assert_eq!(left.len(), 6, "{left:?}");
    assert!(left.iter().all(|key| key.contains("orders.more")), "{left:?}");
    assert_eq!(bus.topics().await.unwrap(), [named("orders.more")]);
    assert_eq!(engine.topics().await.unwrap(), [named("orders.more")]);
    let text = bus.metrics_text().await.unwrap();
    assert!(!text.contains("topic=\"orders\""), "{text}");
    assert!(text.contains("topic=\"orders.more\""));
    for unknown in [bus.topic(&orders()).await.map(drop), bus.delete_topic(&orders()).await] {
        assert_eq!(unknown.unwrap_err().code, ErrorCode::UnknownTopic);
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_of_a_deleted_topic_end() {
    let harness = Harness::new();
    let billing = harness.consumer(at_most(10)).await;
    let mail = harness.consumer_of("mail", at_most(1)).await;
    let other = harness.try_subscribe(&named("other"), at_most(10)).await.unwrap();
    harness.publish(&orders(), 5).await;
    settle().await;
    harness.bus.delete_topic(&orders()).await.unwrap();
    for consumer in [&billing, &mail] {
        let ended = consumer.connection.delivery_queue.take_ended();
        assert_eq!(ended.len(), 1, "{ended:?}");
        let expected = (consumer.subscription.member(), EndReason::TopicDeleted);
        assert_eq!((ended[0].member, ended[0].reason), expected);
        assert_eq!(consumer.arrived().await.len(), 0, "what was not sent is taken back");
        // The group does not answer any more.
        consumer.subscription.pause().await.unwrap_err();
    }
    assert_eq!(other.connection.delivery_queue.take_ended(), []);
    // The group begins again, and its new member gets what follows.
    let again = harness.consumer(at_most(10)).await;
    assert!(again.info.created);
    harness.publish(&orders(), 2).await;
    let delivered = again.arrived().await;
    assert_eq!(delivered.len(), 2);
    assert!(delivered.iter().all(|delivery| delivery.attempt == 1));
    assert_eq!(billing.arrived().await.len(), 0);
    harness.publish(&named("other"), 1).await;
    assert_eq!(other.arrived().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deleting_again_and_again_under_publishers_and_subscribers_ends_clean() {
    let harness = Arc::new(Harness::new());
    let busy = {
        let harness = Arc::clone(&harness);
        tokio::spawn(async move {
            for round in 0..60 {
                let joined = harness.try_subscribe(&orders(), at_most(10)).await;
                harness.publish(&orders(), 1 + round % 3).await;
                if let Ok(consumer) = &joined
                    && let Some(delivery) = consumer.arrived().await.first()
                {
                    let acked =
                        consumer.subscription.ack(vec![delivery.event.id.clone()], None, None);
                    // The group may be gone.
                    drop(acked.await);
                }
            }
        })
    };
    for _ in 0..40 {
        if let Err(refusal) = harness.bus.delete_topic(&orders()).await {
            assert_eq!(refusal.code, ErrorCode::UnknownTopic);
        }
        settle().await;
    }
    busy.await.unwrap();
    settle().await;
    harness.publish(&orders(), 1).await;
    harness.bus.delete_topic(&orders()).await.unwrap();
    settle().await;
    assert_eq!(state_of(harness.engine.as_ref(), "orders").await, [""; 0]);
    // A new group of the topic that follows is delivered everything.
    let consumer = harness.consumer(at_most(10)).await;
    harness.publish(&orders(), 4).await;
    assert_eq!(consumer.arrived().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn followers_of_a_deleted_topic_end_and_new_ones_see_what_follows() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let mut follower = harness.bus.follow(&orders(), &StartAt::Latest).await.unwrap();
    let waiting = tokio::spawn(async move { follower.page(ReadBudget::of_events(10)).await });
    settle().await;
    harness.bus.delete_topic(&orders()).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().code, ErrorCode::UnknownTopic);
    harness.publish(&orders(), 1).await;
    let mut follower = harness.bus.follow(&orders(), &StartAt::Earliest).await.unwrap();
    for _ in 0..3 {
        let page = follower.page(ReadBudget::of_events(10)).await.unwrap();
        let Followed::Events(events) = page else { panic!("{page:?}") };
        assert_eq!(events.len(), 1);
        harness.publish(&orders(), 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_makes_room_for_another() {
    let counts = CensusLimits { topics: 2, groups_per_topic: 1 };
    let harness = Harness::with(Settings { max_counts: Some(counts), ..unlimited() });
    let try_publish = async |topic: &str| {
        let connection = harness.bus.connect();
        harness.try_publish(&connection, &named(topic), vec![event("1")]).await
    };
    try_publish("orders").await.unwrap();
    let _consumer = harness.consumer(at_most(1)).await;
    try_publish("b").await.unwrap();
    assert_eq!(try_publish("c").await.unwrap_err().code, ErrorCode::LimitExceeded);
    harness.bus.delete_topic(&orders()).await.unwrap();
    try_publish("c").await.unwrap();
    assert_eq!(try_publish("orders").await.unwrap_err().code, ErrorCode::LimitExceeded);
    harness.bus.delete_topic(&named("b")).await.unwrap();
    // The group of the deleted topic does not count either.
    let _another = harness.consumer_of("another", at_most(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_purge_removes_the_front_and_counts_what_groups_lose() {
    let harness = Harness::new();
    let consumer = harness.consumer(at_most(10)).await;
    consumer.subscription.pause().await.unwrap().unwrap();
    harness.publish(&orders(), 10).await;
    let purge = async |purge| harness.bus.purge_topic(&orders(), purge).await;
    let purged = |removed, first| Purged { removed, first: Seq(first) };
    assert_eq!(purge(Purge::BeforeSeq(Seq(4))).await.unwrap(), purged(3, 4));
    assert_eq!(purge(Purge::BeforeSeq(Seq(4))).await.unwrap(), purged(0, 4));
    assert_eq!(purge(Purge::BeforeTime(Timestamp(0))).await.unwrap(), purged(0, 4));
    assert_eq!(purge(Purge::All).await.unwrap(), purged(7, 11));
    assert_eq!(purge(Purge::All).await.unwrap(), purged(0, 11));
    let text = harness.bus.metrics_text().await.unwrap();
    let lost = "prombus_events_lost_to_retention_total{group=\"billing\",topic=\"orders\"} 10";
    assert!(text.contains(lost), "{text}");
    assert_eq!(harness.bus.topics().await.unwrap(), [orders()], "the topic stays");
    consumer.subscription.resume().await.unwrap().unwrap();
    harness.publish(&orders(), 1).await;
    assert_eq!(seqs(&consumer.arrived().await), [11]);
    let unknown = harness.bus.purge_topic(&named("nobody"), Purge::All).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::UnknownTopic);
}

#[tokio::test(start_paused = true)]
async fn settings_come_from_the_most_specific_pattern_that_has_them() {
    let settings = |retention_ms, durability| TopicSettings {
        retention_ms,
        durability,
        ..TopicSettings::default()
    };
    let pattern = |text: &str| NamePattern::new(text).unwrap();
    let topics = ConfiguredTopics::new(
        [(named("dlq.orders.eu"), settings(Some(1), None))].into(),
        vec![
            (pattern("**"), settings(Some(5), Some(Durability::Buffered))),
            (pattern("dlq.**"), settings(Some(4), Some(Durability::Fsync))),
            (pattern("dlq.orders.*"), settings(Some(3), None)),
        ],
    );
    let clock = ManualClock::at(NOW);
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new(Arc::new(clock.clone())));
    let harness = Harness::over(engine, Settings { topics, ..unlimited() });
    for topic in ["dlq.orders.eu", "dlq.orders.us", "dlq.x", "orders"] {
        harness.publish(&named(topic), 1).await;
    }
    let rules = async |topic: &str| {
        let rules = harness.bus.topic(&named(topic)).await.unwrap().rules;
        (rules.retention_ms.unwrap(), rules.durability)
    };
    assert_eq!(rules("dlq.orders.eu").await, (1, Durability::Fsync));
    assert_eq!(rules("dlq.orders.us").await, (3, Durability::Fsync));
    assert_eq!(rules("dlq.x").await, (4, Durability::Fsync));
    assert_eq!(rules("orders").await, (5, Durability::Buffered));
    let own = settings(Some(1_000_000), None);
    harness.bus.configure_topic(&named("dlq.x"), own).await.unwrap();
    assert_eq!(rules("dlq.x").await, (1_000_000, Durability::Fsync), "own settings win");
    // Retention finds the topics by their patterns.
    clock.set(clock.now().plus_ms(100));
    tokio::time::sleep(Duration::from_secs(31)).await;
    for (topic, left) in [("dlq.orders.us", 0), ("orders", 0), ("dlq.x", 1)] {
        let bounds = harness.bus.bounds(&named(topic)).await.unwrap();
        assert_eq!(bounds.count(), left, "{topic}");
    }
}

/// The members of three gateways: one of them owns the group, and another one deletes the topic.
#[tokio::test(start_paused = true)]
async fn every_gateway_ends_the_subscriptions_of_a_deleted_topic() {
    let store = WatchedEngine::for_several(memory());
    let gateways = [1, 2, 3].map(|number| Harness::numbered(number, store.clone(), unlimited()));
    // Each gateway has looked for deletions once.
    tokio::time::sleep(A_LOOK).await;
    let mut consumers = Vec::new();
    for gateway in &gateways {
        consumers.push(gateway.consumer(at_most(10)).await);
    }
    gateways[0].bus.configure_topic(&orders(), retained_for(1_000_000)).await.unwrap();
    gateways[2].publish(&orders(), 3).await;
    // The first one owns the group.
    for seq in 1..=3 {
        assert_eq!(consumers[0].next().await.event.seq, Seq(seq));
    }
    gateways[1].bus.delete_topic(&orders()).await.unwrap();
    tokio::time::sleep(2 * A_LOOK).await;
    for (number, consumer) in consumers.iter().enumerate() {
        let ended = consumer.connection.delivery_queue.take_ended();
        assert_eq!(ended.len(), 1, "gateway {number}: {ended:?}");
        assert_eq!(ended[0].reason, EndReason::TopicDeleted, "gateway {number}");
        let known = gateways[number].bus.topic(&orders()).await;
        assert_eq!(known.unwrap_err().code, ErrorCode::UnknownTopic, "gateway {number}");
    }
    let left = state_of(store.as_ref(), "orders").await;
    assert_eq!(left, ["ended/orders"], "a record that expires");
    // The topic begins again, and so does its group, for new members alone.
    let again = gateways[2].consumer(at_most(10)).await;
    assert!(again.info.created);
    gateways[0].publish(&orders(), 2).await;
    assert_eq!(again.next().await.attempt, 1);
    tokio::time::sleep(3 * A_LOOK).await;
    assert_eq!(again.connection.delivery_queue.take_ended(), [], "it is younger than the deletion");
    for consumer in &consumers {
        assert_eq!(consumer.arrived().await.len(), 0);
    }
}
