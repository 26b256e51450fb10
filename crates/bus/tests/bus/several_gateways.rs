//! Several buses over one store: each group is delivered by one of them at a time.

use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{Delivery, Durability, StartAt, TopicSettings};
use prombus_engine::{Engine, Faults, FaultyEngine};
use prombus_proto::{ErrorCode, Seq};

use crate::harness::{
    Consumer, Harness, NOW, at_most, attempts, billing, event, from, ids, memory, named, orders,
    seqs, settle, stored, stored_cursor, unlimited,
};
use crate::watched_engine::WatchedEngine;

const LEASE: Duration = Duration::from_secs(10);
/// By then every gateway has looked at what the others do.
const A_LOOK: Duration = Duration::from_millis(1100);

/// A store for several gateways.
struct Shared(Arc<WatchedEngine>);

/// One of the gateways, and what is wrong with its way to the store.
struct Gateway {
    harness: Harness,
    faults: Faults,
}

impl Shared {
    fn new() -> Self {
        Self(WatchedEngine::for_several(memory()))
    }

    fn gateway(&self, number: u64) -> Gateway {
        let faults = Faults::none();
        let engine = Arc::new(FaultyEngine::new(self.0.clone(), faults.clone()));
        let settings = prombus_bus::Settings { group_lease: LEASE, ..unlimited() };
        Gateway { harness: Harness::numbered(number, engine, settings), faults }
    }

    async fn floor(&self) -> Seq {
        stored_cursor(self.0.as_ref(), &orders(), &billing()).await.floor
    }
}

impl Gateway {
    /// It lives, and does not reach the store.
    fn cut_off(&self) {
        self.faults.fail_commits_before(usize::MAX);
        self.faults.fail_reads(usize::MAX);
    }

    fn reconnect(&self) {
        self.faults.heal();
    }

    async fn consumer(&self) -> Consumer {
        self.harness.consumer(at_most(100)).await
    }
}

async fn acks_as_stale(consumer: &Consumer, delivered: &[Delivery]) {
    let acked = consumer.ack(ids(delivered)).await;
    assert_eq!(acked.stale, (0..delivered.len()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn one_delivers_what_all_of_them_took_and_the_others_wait() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    for round in 0..3 {
        one.harness.publish(&orders(), 2).await;
        two.harness.publish(&orders(), 2).await;
        tokio::time::sleep(A_LOOK).await;
        let delivered = first.arrived().await;
        let expected: Vec<u64> = (round * 4 + 1..=round * 4 + 4).collect();
        assert_eq!(seqs(&delivered), expected);
        assert!(first.ack(ids(&delivered)).await.stale.is_empty());
    }
    tokio::time::sleep(3 * LEASE).await;
    assert!(second.arrived().await.is_empty());
    assert_eq!(store.floor().await, Seq(12));
}

#[tokio::test(start_paused = true)]
async fn one_that_dies_is_replaced_within_the_lease_time() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 3).await;
    let delivered = first.arrived().await;
    assert!(first.ack(ids(&delivered[..1])).await.stale.is_empty());
    // At any time between two of its heartbeat.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    drop(one);
    let again = second.next_within(LEASE).await.expect("it takes over in time");
    assert_eq!((again.event.seq, again.attempt), (Seq(2), 2));
    let rest = second.arrived().await;
    assert_eq!((seqs(&rest), attempts(&rest)), (vec![3], vec![2]));
    assert!(second.ack(vec![again.event.id, rest[0].event.id.clone()]).await.stale.is_empty());
    assert_eq!(store.floor().await, Seq(3));
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn one_that_lives_is_never_replaced() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 1).await;
    assert_eq!(first.arrived().await.len(), 1);
    for _ in 0..30 {
        // Some of its heartbeat fail, as they do.
        one.faults.fail_commits_before(2);
        tokio::time::sleep(LEASE).await;
        assert!(second.arrived().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_replaced_changes_nothing_any_more() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 4).await;
    let delivered = first.arrived().await;
    assert_eq!(seqs(&delivered), [1, 2, 3, 4]);
    one.cut_off();
    tokio::time::sleep(LEASE).await;
    let again = second.arrived().await;
    assert_eq!((seqs(&again), attempts(&again)), (vec![1, 2, 3, 4], vec![2; 4]));
    assert!(second.ack(ids(&again[..2])).await.stale.is_empty());
    let before = stored_cursor(store.0.as_ref(), &orders(), &billing()).await;
    one.reconnect();
    // Late, and of no effect, whatever it is.
    let publish = {
        let connection = one.harness.bus.connect();
        one.harness.batch(&connection, &named("shipped"), vec![event("1")]).unwrap()
    };
    let id = delivered[2].event.id.clone();
    let refusal =
        first.subscription.ack(vec![id.clone()], None, Some(publish)).await.unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::LeaseLost);
    assert!(stored(store.0.as_ref(), &named("shipped")).await.is_empty());
    acks_as_stale(&first, &delivered).await;
    let nacked = first.subscription.nack(id.clone(), None, None).await.unwrap().unwrap();
    assert!(nacked.stale);
    let refusal = first.subscription.extend(id, LEASE).await.unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::LeaseLost);
    settle().await;
    assert_eq!(stored_cursor(store.0.as_ref(), &orders(), &billing()).await, before);
    // What the other one has goes on, and comes back here when that one leaves.
    assert!(second.ack(ids(&again[2..3])).await.stale.is_empty());
    assert_eq!(store.floor().await, Seq(3));
    drop(second);
    let back = first.next_within(2 * A_LOOK).await.expect("it was given back");
    assert_eq!((back.event.seq, back.attempt), (Seq(4), 3));
    assert!(first.ack(vec![back.event.id]).await.stale.is_empty());
    assert_eq!(store.floor().await, Seq(4));
}

#[tokio::test(start_paused = true)]
async fn a_late_acknowledgement_is_marked_nevertheless() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 2).await;
    let delivered = first.arrived().await;
    one.cut_off();
    tokio::time::sleep(LEASE).await;
    assert_eq!(second.arrived().await.len(), 2);
    one.reconnect();
    // First while the gateway does not know yet that it was replaced, then when it does.
    for delivery in &delivered {
        let id = delivery.event.id.clone();
        let until = Some(NOW.plus_ms(1000));
        let acked = first.subscription.ack(vec![id.clone()], until, None).await.unwrap().unwrap();
        assert_eq!(acked.stale, [0]);
        let seen = two.harness.bus.seen(&orders(), &billing(), vec![id.clone()]).await.unwrap();
        assert_eq!(seen, [id]);
    }
    assert_eq!(store.floor().await, Seq(0));
}

#[tokio::test(start_paused = true)]
async fn one_that_others_may_take_for_gone_lends_nothing() {
    let store = Shared::new();
    let one = store.gateway(1);
    let first = one.consumer().await;
    one.faults.fail_commits_before(usize::MAX);
    tokio::time::sleep(LEASE).await;
    // Somebody else published, and this one can read it.
    store.gateway(2).harness.publish(&orders(), 1).await;
    tokio::time::sleep(A_LOOK).await;
    assert!(first.arrived().await.is_empty());
    one.reconnect();
    let delivered = first.next_within(LEASE).await.expect("nobody took it over");
    assert!(first.ack(vec![delivered.event.id]).await.stale.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_subscribes_at_any_more_gives_its_groups_back() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 2).await;
    let delivered = first.arrived().await;
    assert!(first.ack(ids(&delivered[..1])).await.stale.is_empty());
    drop(first);
    let next = second.next_within(2 * A_LOOK).await.expect("it was given back");
    assert_eq!((next.event.seq, next.attempt), (Seq(2), 2));
    // And so does one that is stopped.
    let first = one.consumer().await;
    two.harness.bus.close().await.unwrap();
    let next = first.next_within(2 * A_LOOK).await.expect("it was given back");
    assert_eq!((next.event.seq, next.attempt), (Seq(2), 3));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_does_not_end_a_tenure() {
    let store = Shared::new();
    let one = store.gateway(1);
    let first = one.consumer().await;
    one.harness.publish(&orders(), 2).await;
    let delivered = first.arrived().await;
    one.faults.fail_commits_after(1);
    let refusal = first.subscription.ack(ids(&delivered), None, None).await.unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::StorageUnavailable);
    tokio::time::sleep(LEASE).await;
    assert!(first.ack(ids(&delivered)).await.stale.is_empty());
    one.harness.publish(&orders(), 1).await;
    let next = first.arrived().await;
    assert_eq!(seqs(&next), [3]);
    assert!(first.ack(ids(&next)).await.stale.is_empty());
    assert_eq!(store.floor().await, Seq(3));
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_taking_had_no_answer_is_not_blocked() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    // So that its first heartbeat is over.
    tokio::time::sleep(A_LOOK).await;
    one.faults.fail_commits_after(1);
    let refused = one.harness.try_subscribe(&orders(), from(StartAt::Earliest)).await;
    assert_eq!(refused.err().unwrap().code, ErrorCode::StorageUnavailable);
    let second = two.consumer().await;
    two.harness.publish(&orders(), 1).await;
    assert!(second.next_within(LEASE).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_taking_over_had_no_answer_is_delivered() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 1).await;
    assert_eq!(first.arrived().await.len(), 1);
    drop(one);
    // It still trusts its last heartbeat when it takes the group over, and hears of no commit since.
    tokio::time::sleep(Duration::from_millis(6500)).await;
    two.faults.fail_commits_after(usize::MAX);
    tokio::time::sleep(Duration::from_millis(3000)).await;
    assert!(second.arrived().await.is_empty());
    two.reconnect();
    assert!(second.next_within(3 * A_LOOK).await.is_some(), "it waits for itself");
    drop(first);
}

/// What comes back from the store is damaged here, and so cannot be what was delivered.
async fn is_delivered_from_memory(durability: Durability) -> bool {
    let store = Shared::new();
    let own = TopicSettings { durability: Some(durability), ..TopicSettings::default() };
    let mut settings = prombus_bus::Settings { group_lease: LEASE, ..unlimited() };
    settings.topics.insert(orders(), own);
    let engine: Arc<dyn Engine> = store.0.clone();
    let harness = Harness::numbered(1, engine, settings);
    let consumer = harness.consumer(at_most(10)).await;
    store.0.damage(&orders(), 1, 3);
    harness.publish(&orders(), 3).await;
    tokio::time::sleep(A_LOOK).await;
    !consumer.arrived().await.is_empty()
}

#[tokio::test(start_paused = true)]
async fn what_an_election_may_take_back_is_delivered_when_the_engine_has_it() {
    assert!(is_delivered_from_memory(Durability::Fsync).await);
    assert!(!is_delivered_from_memory(Durability::Buffered).await);
}

#[tokio::test(start_paused = true)]
async fn what_is_set_at_one_holds_at_all() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    two.harness.publish(&orders(), 1).await;
    let own = TopicSettings { retention_bytes: Some(1), ..TopicSettings::default() };
    one.harness.bus.configure_topic(&orders(), own).await.unwrap();
    assert_eq!(stored(store.0.as_ref(), &orders()).await.len(), 0);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(two.harness.bus.topic(&orders()).await.unwrap().own, own);
    // And it is applied by whoever is left.
    drop(one);
    two.harness.publish(&orders(), 3).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(stored(store.0.as_ref(), &orders()).await.len(), 0);
}
