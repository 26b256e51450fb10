//! Dead letters.

use std::time::Duration;

use prombus_bus::{AfterNack, StartAt, SubscribeOptions, dead_letter_topic};
use prombus_proto::{Event, Seq};

use crate::harness::{
    Harness, NOW, event, from, ids, large_event, memory, named, orders, settle, stored, unlimited,
};
use crate::watched_engine::WatchedEngine;

fn attempts(max_attempts: u32) -> SubscribeOptions {
    SubscribeOptions { max_attempts: Some(max_attempts), ..from(StartAt::Earliest) }
}

fn payload(json: &[u8]) -> serde_json::Value {
    let (_, letter) = Event::decode(json).unwrap();
    serde_json::from_slice(letter.payload.as_bytes()).unwrap()
}

#[test]
fn dead_letters_go_to_a_topic_named_after_the_original() {
    assert_eq!(dead_letter_topic(&orders()).unwrap(), named("dlq.orders"));
    assert!(dead_letter_topic(&named(&"a".repeat(197))).is_err());
}

#[tokio::test(start_paused = true)]
async fn the_last_failed_attempt_stores_a_dead_letter_and_finishes_the_event_in_one_commit() {
    let engine = WatchedEngine::over(memory());
    let harness = Harness::over(engine.clone(), unlimited());
    let original = event("{\"n\": 1.0}");
    harness.try_publish(&harness.bus.connect(), &orders(), vec![original]).await.unwrap();
    let consumer = harness.consumer(attempts(2)).await;
    let first = consumer.next().await;
    consumer.nack(&first, Some(Duration::ZERO)).await;
    let second = consumer.next().await;
    assert_eq!(second.attempt, 2);
    settle().await;
    assert!(harness.dead_letters().await.is_empty());
    engine.take_commits();
    consumer.nack(&second, Some(Duration::ZERO)).await;
    let commits = engine.take_commits();
    assert_eq!(commits.len(), 1);
    assert!(commits[0].changes_state && commits[0].topics == [named("dlq.orders")]);
    assert_eq!(harness.cursor().await.floor, Seq(1));

    let letters = harness.dead_letters().await;
    assert_eq!(letters.len(), 1);
    let (_, letter) = Event::decode(&letters[0].json).unwrap();
    let original = stored(harness.engine.as_ref(), &orders()).await.remove(0);
    let expected = format!(
        r#"{{"topic":"orders","group":"billing","original":{},"err":"no stock","ts":{NOW},"attempts":2}}"#,
        String::from_utf8(original.json.to_vec()).unwrap()
    );
    assert_eq!(String::from_utf8(letter.payload.as_bytes().to_vec()).unwrap(), expected);
    assert_eq!(letter.caused_by, [original.id]);
    assert!(consumer.next_within(Duration::from_secs(3600)).await.is_none());
    assert_eq!(harness.dead_letters().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn with_one_attempt_any_failure_dead_letters_the_event() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(attempts(1)).await;
    let delivered = consumer.arrived().await;
    consumer.nack(&delivered[0], None).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let errors = |letters: Vec<prombus_engine::StoredEvent>| -> Vec<_> {
        letters.iter().map(|letter| payload(&letter.json)["err"].clone()).collect()
    };
    assert_eq!(
        errors(harness.dead_letters().await),
        [
            "no stock",
            "not acknowledged before its deadline",
            "not acknowledged before its deadline"
        ]
    );
    assert_eq!(harness.cursor().await.floor, Seq(3));
}

#[tokio::test(start_paused = true)]
async fn zero_attempts_count_as_one() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(attempts(0)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(delivered.len(), 1);
    consumer.ack(ids(&delivered)).await;
    assert!(harness.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_does_not_hold_up_other_events() {
    let harness = Harness::new();
    harness.publish(&orders(), 5).await;
    let consumer = harness.consumer(attempts(1)).await;
    let delivered = consumer.arrived().await;
    consumer.nack(&delivered[2], None).await;
    assert_eq!(harness.cursor().await.floor, Seq(0));
    let others = [0, 1, 3, 4].map(|place| delivered[place].event.id.clone());
    assert!(consumer.ack(others.into()).await.stale.is_empty());
    assert_eq!(harness.cursor().await.floor, Seq(5));
}

#[tokio::test(start_paused = true)]
async fn dead_letters_can_be_consumed() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let letters = harness.try_subscribe(&named("dlq.orders"), from(StartAt::Latest)).await.unwrap();
    let consumer = harness.consumer(attempts(1)).await;
    consumer.nack(&consumer.next().await, None).await;
    assert_eq!(letters.arrived().await.len(), 1);
}

/// Together the letters exceed the size of a commit.
#[tokio::test(start_paused = true)]
async fn many_large_dead_letters_take_several_commits() {
    let engine = WatchedEngine::over(memory());
    let memory = prombus_bus::MemoryLimits::of_each(1 << 30);
    let settings = prombus_bus::Settings { max_outbox_bytes: 128 << 20, memory, ..unlimited() };
    let harness = Harness::over(engine.clone(), settings);
    for _ in 0..50 {
        let large = vec![large_event(1_000_000)];
        harness.try_publish(&harness.bus.connect(), &orders(), large).await.unwrap();
    }
    let consumer = harness.consumer(attempts(1)).await;
    let delivered = consumer.arrived().await;
    assert_eq!(delivered.len(), 50);
    engine.take_commits();
    consumer
        .subscription
        .nack(ids(&delivered), None, AfterNack::DeadLetter)
        .await
        .unwrap()
        .unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(engine.take_commits().iter().all(|commit| commit.bytes < 8 << 20));
    let letters = harness.dead_letters().await;
    let originals: Vec<_> =
        letters.iter().map(|letter| payload(&letter.json)["original"]["seq"].clone()).collect();
    assert_eq!(originals, (1..=50).collect::<Vec<_>>());
    assert_eq!(harness.cursor().await.floor, Seq(50));
}
