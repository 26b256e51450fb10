//! What counts as a failed attempt of an event, and what does not.

use std::collections::BTreeSet;
use std::time::Duration;

use prombus_bus::{AfterNack, Delivery, StartAt, SubscribeOptions};
use prombus_engine::StoredEvent;
use prombus_proto::{Event, Seq, Timestamp};
use tokio::time::{Instant, sleep};

use crate::harness::{
    Consumer, Harness, NOW, at_most, attempts, from, ids, memory, orders, seqs, settle, unlimited,
};
use crate::watched_engine::WatchedEngine;

/// The default.
const MAX_ATTEMPTS: u32 = 5;
/// Longer than every back-off.
const LONG: Duration = Duration::from_secs(3600);

fn payload(letter: &StoredEvent) -> serde_json::Value {
    let (_, letter) = Event::decode(&letter.json).unwrap();
    serde_json::from_slice(letter.payload.as_bytes()).unwrap()
}

fn named(max_attempts: u32) -> SubscribeOptions {
    SubscribeOptions { max_attempts: Some(max_attempts), ..from(StartAt::Earliest) }
}

/// Loses the connection.
async fn crash(consumer: Consumer) {
    drop(consumer);
    settle().await;
}

async fn nack(consumer: &Consumer, deliveries: &[Delivery], next: AfterNack) -> bool {
    let reason = Some("no stock".to_owned());
    consumer.subscription.nack(ids(deliveries), reason, next).await.unwrap().unwrap().stale
}

#[tokio::test(start_paused = true)]
async fn reconnects_of_a_crashing_consumer_dead_letter_nothing() {
    let harness = Harness::new();
    harness.publish(&orders(), 30).await;
    let start = Instant::now();
    for _ in 0..20 {
        let consumer = harness.consumer(at_most(100)).await;
        consumer.arrived().await;
        sleep(Duration::from_millis(500)).await;
        crash(consumer).await;
    }
    assert!(start.elapsed() < Duration::from_secs(11));
    assert!(harness.dead_letters().await.is_empty());
    let consumer = harness.consumer(at_most(100)).await;
    let mut seen = BTreeSet::new();
    while let Some(delivery) = consumer.next_within(LONG).await {
        seen.insert(delivery.event.seq.0);
        assert!(consumer.ack(vec![delivery.event.id]).await.stale.is_empty());
    }
    assert_eq!(seen, (1..=30).collect());
    assert!(harness.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn orderly_restarts_of_the_server_dead_letter_nothing() {
    let mut harness = Harness::over(WatchedEngine::that_stays_open(memory()), unlimited());
    harness.publish(&orders(), 3).await;
    for attempt in 1..=10 {
        let consumer = harness.consumer(at_most(10)).await;
        let delivered = consumer.arrived().await;
        assert_eq!((seqs(&delivered), attempts(&delivered)), (vec![1, 2, 3], vec![attempt; 3]));
        // Some connections end before the groups do.
        harness.bus.refuse_new_work();
        let consumer = if attempt % 2 == 0 {
            crash(consumer).await;
            None
        } else {
            Some(consumer)
        };
        harness = harness.close_and_restart().await;
        drop(consumer);
    }
    assert!(harness.dead_letters().await.is_empty());
    // None of this counts: the next failure is the first.
    let consumer = harness.consumer(named(2)).await;
    let delivered = consumer.arrived().await;
    nack(&consumer, &delivered, AfterNack::BackOff).await;
    assert!(harness.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn unsubscribing_counts_as_nothing() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    for attempt in 1..=3 * MAX_ATTEMPTS {
        let consumer = harness.consumer(at_most(1)).await;
        assert_eq!(attempts(&consumer.arrived().await), [attempt], "at once");
        consumer.subscription.end().await.unwrap().unwrap();
    }
    assert!(harness.dead_letters().await.is_empty());
}

/// Event 3 kills whoever gets it. The others are handled as soon as they arrive without it.
#[tokio::test(start_paused = true)]
async fn an_event_that_crashes_its_consumers_is_dead_lettered_and_others_are_not() {
    let mut harness = Harness::over(WatchedEngine::that_stays_open(memory()), unlimited());
    harness.publish(&orders(), 6).await;
    let mut handled = BTreeSet::new();
    let mut crashes_alone = 0;
    for round in 0..200 {
        if round == 7 {
            // The count survives a restart.
            harness = harness.close_and_restart().await;
        }
        let consumer = harness.consumer(at_most(100)).await;
        // Everything that is to be delivered together arrives together.
        while let Some(first) = consumer.next_within(LONG).await {
            let mut delivered = vec![first];
            delivered.extend(consumer.arrived().await);
            if seqs(&delivered).contains(&3) {
                crashes_alone += u32::from(delivered.len() == 1);
                break;
            }
            handled.extend(seqs(&delivered));
            consumer.ack(ids(&delivered)).await;
        }
        crash(consumer).await;
        if harness.cursor().await.floor == Seq(6) {
            break;
        }
    }
    let letters = harness.dead_letters().await;
    assert_eq!(letters.len(), 1);
    let letter = payload(&letters[0]);
    assert_eq!(letter["original"]["seq"], 3);
    let error = letter["err"].as_str().unwrap();
    assert!(error.contains("connection of its consumer was lost repeatedly"), "{error}");
    assert_eq!(handled, [1, 2, 4, 5, 6].into());
    assert_eq!(crashes_alone, MAX_ATTEMPTS);
    // In company, and then alone.
    assert_eq!(letter["attempts"], 2 * MAX_ATTEMPTS);
}

#[tokio::test(start_paused = true)]
async fn a_suspected_event_is_alone_and_other_members_go_on() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    for _ in 0..2 {
        let consumer = harness.consumer(SubscribeOptions { max_attempts: Some(2), ..at_most(100) });
        let consumer = consumer.await;
        assert_eq!(consumer.arrived().await.len(), 2);
        crash(consumer).await;
    }
    let (one, two) = (harness.consumer(at_most(10)).await, harness.consumer(at_most(10)).await);
    harness.publish(&orders(), 3).await;
    // New events, while the suspects back off.
    let (in_one, in_two) = (one.arrived().await, two.arrived().await);
    assert_eq!(in_one.len() + in_two.len(), 3);
    sleep(Duration::from_secs(2)).await;
    assert!(one.arrived().await.is_empty() && two.arrived().await.is_empty(), "both are busy");
    harness.publish(&orders(), 1).await;
    // One of them gets nothing new until it is idle, the other one does.
    let (new_in_one, new_in_two) = (one.arrived().await, two.arrived().await);
    assert_eq!(seqs(&[new_in_one.clone(), new_in_two.clone()].concat()), [6]);
    let (apart, busy, before) =
        if new_in_one.is_empty() { (one, two, in_one) } else { (two, one, in_two) };
    for suspect in [1, 2] {
        if suspect == 1 {
            apart.ack(ids(&before)).await;
        }
        let alone = apart.arrived().await;
        assert_eq!(seqs(&alone), [suspect]);
        harness.publish(&orders(), 1).await;
        assert!(apart.arrived().await.is_empty(), "nothing else is in flight with it");
        let others = busy.arrived().await;
        busy.ack(ids(&others)).await;
        apart.ack(ids(&alone)).await;
    }
    sleep(LONG).await;
    assert!(harness.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_first_lost_connection_redelivers_at_once_and_further_ones_back_off() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let mut waits = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let consumer = harness.consumer(at_most(1)).await;
        consumer.next().await;
        waits.push(start.elapsed().as_secs());
        crash(consumer).await;
    }
    // Without members, the group has left memory each time: the waits are stored.
    assert_eq!(waits, [0, 0, 1, 5, 25]);
}

#[tokio::test(start_paused = true)]
async fn a_back_off_survives_a_restart() {
    let harness = Harness::over(WatchedEngine::that_stays_open(memory()), unlimited());
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    consumer.nack(&delivered[0], Some(Duration::from_secs(60))).await;
    let harness = harness.close_and_restart().await;
    let consumer = harness.consumer(at_most(10)).await;
    let not_failed = consumer.arrived().await;
    assert_eq!(seqs(&not_failed), [2]);
    consumer.ack(ids(&not_failed)).await;
    assert!(consumer.next_within(Duration::from_secs(59)).await.is_none());
    let again = consumer.next_within(Duration::from_secs(2)).await.unwrap();
    assert_eq!((again.event.seq, again.attempt), (Seq(1), 2));
}

/// Returns a harness whose first event failed and is delivered again after ten minutes.
async fn backing_off_for_ten_minutes() -> Harness {
    let harness = Harness::over(WatchedEngine::that_stays_open(memory()), unlimited());
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let failed = consumer.next().await;
    consumer.nack(&failed, Some(Duration::from_secs(600))).await;
    harness
}

#[tokio::test(start_paused = true)]
async fn a_back_off_goes_on_while_the_server_is_stopped() {
    let mut harness = backing_off_for_ten_minutes().await;
    for _ in 0..2 {
        harness.pass(Duration::from_secs(100)).await;
        harness = harness.close_and_restart().await;
        let consumer = harness.consumer(at_most(10)).await;
        assert!(consumer.arrived().await.is_empty());
    }
    harness.pass(Duration::from_secs(300)).await;
    let harness = harness.close_and_restart().await;
    let consumer = harness.consumer(at_most(10)).await;
    assert!(consumer.next_within(Duration::from_secs(98)).await.is_none());
    let again = consumer.next_within(Duration::from_secs(3)).await.unwrap();
    assert_eq!((again.event.seq, again.attempt), (Seq(1), 2));
}

/// The wait starts again once, not with every restart.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_prolongs_a_back_off_at_most_once() {
    let mut harness = backing_off_for_ten_minutes().await;
    harness.clock.set(Timestamp(NOW.0 - 365 * 86_400_000));
    for _ in 0..2 {
        harness = harness.close_and_restart().await;
        let consumer = harness.consumer(at_most(10)).await;
        assert!(consumer.arrived().await.is_empty());
        drop(consumer);
        harness.pass(Duration::from_secs(300)).await;
    }
    let harness = harness.close_and_restart().await;
    let consumer = harness.consumer(at_most(10)).await;
    let again =
        consumer.next_within(Duration::from_secs(3)).await.expect("it starts again and again");
    assert_eq!((again.event.seq, again.attempt), (Seq(1), 2));
}

#[tokio::test(start_paused = true)]
async fn five_attempts_span_two_and_a_half_minutes() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    let ack_timeout = Some(Duration::from_secs(1));
    let consumer =
        harness.consumer(SubscribeOptions { ack_timeout, ..from(StartAt::Earliest) }).await;
    let start = Instant::now();
    let mut nacked_at = Duration::ZERO;
    while harness.dead_letters().await.len() < 2 {
        for delivery in consumer.arrived().await {
            // The first event is NACKed each time, the second one always misses its deadline.
            if delivery.event.seq == Seq(1) {
                consumer.nack(&delivery, None).await;
                nacked_at = start.elapsed();
            }
        }
        sleep(Duration::from_millis(100)).await;
        assert!(start.elapsed() < LONG);
    }
    assert_eq!(nacked_at.as_secs(), 1 + 5 + 25 + 125);
    assert_eq!(start.elapsed().as_secs(), nacked_at.as_secs() + 5, "and five leases of a second");
    let letters: Vec<_> = harness.dead_letters().await.iter().map(payload).collect();
    assert_eq!((&letters[0]["err"], &letters[0]["attempts"]), (&"no stock".into(), &5.into()));
    assert_eq!(letters[1]["err"], "not acknowledged before its deadline");
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_keeps_the_last_reason() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(named(3)).await;
    let zero = Some(Duration::ZERO);
    for attempt in 1..=3 {
        let delivered = consumer.arrived().await;
        assert_eq!(attempts(&delivered), vec![attempt; 3]);
        let reason = format!("reason {attempt}");
        consumer.nack_because(&delivered[0], Some(&reason), zero).await;
        let second = (attempt < 3).then_some(reason.as_str());
        consumer.nack_because(&delivered[1], second, zero).await;
        if attempt < 3 {
            consumer.nack_because(&delivered[2], Some(&reason), zero).await;
        }
    }
    sleep(Duration::from_secs(31)).await;
    let letters = harness.dead_letters().await;
    let errors: Vec<_> = letters.iter().map(|letter| payload(letter)["err"].clone()).collect();
    assert_eq!(
        errors,
        [
            "reason 3",
            "not acknowledged: nack without a reason; the last reason that was given: reason 2",
            "not acknowledged before its deadline; the last reason that was given: reason 2",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn many_events_are_nacked_together() {
    let harness = Harness::new();
    harness.publish(&orders(), 4).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    assert!(!nack(&consumer, &delivered[..2], AfterNack::Delay(Duration::ZERO)).await);
    let again = consumer.arrived().await;
    assert_eq!((seqs(&again), attempts(&again)), (vec![1, 2], vec![2, 2]));
    consumer.ack(ids(&again[..1])).await;
    // One of them is stale, the others are not.
    let mixed = [again[0].clone(), delivered[2].clone(), delivered[3].clone()];
    assert!(nack(&consumer, &mixed, AfterNack::BackOff).await);
    assert!(nack(&consumer, &delivered[..1], AfterNack::DeadLetter).await, "all are stale");
    assert!(consumer.arrived().await.is_empty());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(seqs(&consumer.arrived().await), [3, 4]);
    assert!(harness.dead_letters().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn events_can_be_dead_lettered_at_once() {
    let harness = Harness::new();
    harness.publish(&orders(), 3).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = consumer.arrived().await;
    assert!(!nack(&consumer, &delivered[..2], AfterNack::DeadLetter).await);
    let letters: Vec<_> = harness.dead_letters().await.iter().map(payload).collect();
    let originals: Vec<_> = letters.iter().map(|letter| &letter["original"]["seq"]).collect();
    assert_eq!(originals, [1, 2]);
    assert!(letters.iter().all(|letter| letter["err"] == "no stock" && letter["attempts"] == 1));
    assert_eq!(harness.cursor().await.floor, Seq(2));
    consumer.ack(ids(&delivered[2..])).await;
    assert!(consumer.next_within(LONG).await.is_none());
}
