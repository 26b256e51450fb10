//! Several gateways over one store: one of them at a time delivers a group.

use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{AfterNack, Charges, Delivery, Durability, Rate, StartAt, TopicSettings};
use prombus_engine::{Engine, Faults, FaultyEngine};
use prombus_proto::{ErrorCode, EventId, Seq};

use crate::harness::{
    Consumer, Harness, NOW, at_most, attempts, billing, event, from, ids, memory, named, orders,
    seqs, settle, stored, stored_cursor, unlimited,
};
use crate::watched_engine::WatchedEngine;

const LEASE: Duration = Duration::from_secs(10);
/// Long enough for every gateway to check the leases of the others.
const A_LOOK: Duration = Duration::from_millis(1100);

/// A store for several gateways.
struct Shared(Arc<WatchedEngine>);

/// A gateway, and the faults on its way to the store.
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
    /// Keeps the gateway running, but cut off from the store.
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

/// The only consumer of the group crashes and connects to another gateway.
#[tokio::test(start_paused = true)]
async fn repeated_crashes_back_off_from_gateway_to_gateway() {
    let store = Shared::new();
    let gateways = [store.gateway(1), store.gateway(2)];
    gateways[0].harness.publish(&orders(), 1).await;
    let mut waits = Vec::new();
    for round in 0..5 {
        let consumer = gateways[round % 2].consumer().await;
        let start = tokio::time::Instant::now();
        consumer.next().await;
        waits.push(start.elapsed().as_secs());
        drop(consumer);
        tokio::time::sleep(A_LOOK).await;
    }
    assert_eq!(waits, [0, 0, 1, 5, 25]);
}

#[tokio::test(start_paused = true)]
async fn one_gateway_delivers_the_events_of_all_and_the_others_stand_by() {
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
async fn a_dead_gateway_is_replaced_within_the_lease_time() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 3).await;
    let delivered = first.arrived().await;
    assert!(first.ack(ids(&delivered[..1])).await.stale.is_empty());
    // At any time between two of its heartbeats.
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
async fn a_living_gateway_is_never_replaced() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 1).await;
    assert_eq!(first.arrived().await.len(), 1);
    for _ in 0..30 {
        // Some of its heartbeats fail.
        one.faults.fail_commits_before(2);
        tokio::time::sleep(LEASE).await;
        assert!(second.arrived().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_gateway_can_store_nothing() {
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
    // Too late: none of these has any effect.
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
    let nacked =
        first.subscription.nack(vec![id.clone()], None, AfterNack::BackOff).await.unwrap().unwrap();
    assert!(nacked.stale);
    let refusal = first.subscription.extend(id, LEASE).await.unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::LeaseLost);
    settle().await;
    assert_eq!(stored_cursor(store.0.as_ref(), &orders(), &billing()).await, before);
    // The other gateway continues, and the group comes back when its member leaves.
    assert!(second.ack(ids(&again[2..3])).await.stale.is_empty());
    assert_eq!(store.floor().await, Seq(3));
    drop(second);
    let back = first.next_within(2 * A_LOOK).await.expect("it was given back");
    assert_eq!((back.event.seq, back.attempt), (Seq(4), 3));
    assert!(first.ack(vec![back.event.id]).await.stale.is_empty());
    assert_eq!(store.floor().await, Seq(4));
}

#[tokio::test(start_paused = true)]
async fn an_ack_at_a_replaced_gateway_still_marks() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 2).await;
    let delivered = first.arrived().await;
    one.cut_off();
    tokio::time::sleep(LEASE).await;
    assert_eq!(second.arrived().await.len(), 2);
    one.reconnect();
    // Once before the gateway knows that it was replaced, and once after.
    for delivery in &delivered {
        let id = delivery.event.id.clone();
        let until = NOW.plus_ms(1000);
        let (bus, charges) = (&one.harness.bus, Charges::default());
        let acked = bus.ack_and_mark(&first.subscription, vec![id.clone()], until, charges);
        assert_eq!(acked.await.unwrap().acked.stale, [0]);
        let seen = two.harness.bus.seen(&orders(), &billing(), vec![id.clone()]).await.unwrap();
        assert_eq!(seen, [id]);
    }
    assert_eq!(store.floor().await, Seq(0));
}

#[tokio::test(start_paused = true)]
async fn made_up_ids_take_tokens_at_a_gateway_that_does_not_own_the_group() {
    let store = Shared::new();
    let one = store.gateway(1);
    let _owner = one.consumer().await;
    let rate = Rate { capacity: 100, refill_per_sec: 1 };
    let settings = prombus_bus::Settings { connection_rate: Some(rate), ..unlimited() };
    let two = Harness::numbered(2, store.0.clone(), settings);
    let second = two.consumer(at_most(100)).await;
    let made_up: Vec<_> = (0..1000).map(|n: u32| EventId::new(&n.to_string()).unwrap()).collect();
    let available = || second.connection.limit.available(tokio::time::Instant::now().into_std());
    assert_eq!(second.ack(made_up.clone()).await.stale.len(), 1000);
    assert_eq!(available(), 90);
    let nacked = second.subscription.nack(made_up, None, AfterNack::BackOff);
    assert!(nacked.await.unwrap().unwrap().stale);
    assert_eq!(available(), 80);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_with_a_stale_heartbeat_delivers_nothing() {
    let store = Shared::new();
    let one = store.gateway(1);
    let first = one.consumer().await;
    one.faults.fail_commits_before(usize::MAX);
    tokio::time::sleep(LEASE).await;
    // Another gateway published, and this one can read the event.
    store.gateway(2).harness.publish(&orders(), 1).await;
    tokio::time::sleep(A_LOOK).await;
    assert!(first.arrived().await.is_empty());
    one.reconnect();
    let delivered = first.next_within(LEASE).await.expect("nobody took it over");
    assert!(first.ack(vec![delivered.event.id]).await.stale.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_without_members_releases_its_groups() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 2).await;
    let delivered = first.arrived().await;
    assert!(first.ack(ids(&delivered[..1])).await.stale.is_empty());
    drop(first);
    let next = second.next_within(2 * A_LOOK).await.expect("it was given back");
    assert_eq!((next.event.seq, next.attempt), (Seq(2), 2));
    // So does a gateway that is stopped.
    let first = one.consumer().await;
    two.harness.bus.close().await.unwrap();
    let next = first.next_within(2 * A_LOOK).await.expect("it was given back");
    assert_eq!((next.event.seq, next.attempt), (Seq(2), 3));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_end_ownership() {
    let store = Shared::new();
    let one = store.gateway(1);
    let first = one.consumer().await;
    one.harness.publish(&orders(), 2).await;
    let delivered = first.arrived().await;
    one.faults.fail_commits_after(1);
    assert!(first.ack(ids(&delivered)).await.stale.is_empty(), "it is stored");
    tokio::time::sleep(LEASE).await;
    one.harness.publish(&orders(), 1).await;
    let next = first.arrived().await;
    assert_eq!(seqs(&next), [3]);
    assert!(first.ack(ids(&next)).await.stale.is_empty());
    assert_eq!(store.floor().await, Seq(3));
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_claim_does_not_block_the_group() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    // Lets its first heartbeat pass.
    tokio::time::sleep(A_LOOK).await;
    one.faults.fail_commits_after(1);
    let refused = one.harness.try_subscribe(&orders(), from(StartAt::Earliest)).await;
    assert_eq!(refused.err().unwrap().code, ErrorCode::StorageUnavailable);
    let second = two.consumer().await;
    two.harness.publish(&orders(), 1).await;
    assert!(second.next_within(LEASE).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_takeover_is_retried() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    let (first, second) = (one.consumer().await, two.consumer().await);
    one.harness.publish(&orders(), 1).await;
    assert_eq!(first.arrived().await.len(), 1);
    drop(one);
    // It still trusts its last heartbeat when it claims the group, and every later commit has no answer.
    tokio::time::sleep(Duration::from_millis(6500)).await;
    two.faults.fail_commits_after(usize::MAX);
    tokio::time::sleep(Duration::from_millis(3000)).await;
    assert!(second.arrived().await.is_empty());
    two.reconnect();
    assert!(second.next_within(3 * A_LOOK).await.is_some(), "it waits for itself");
    drop(first);
}

/// Reads from the store are damaged here, so what is delivered came from memory.
async fn is_delivered_from_memory(durability: Durability) -> bool {
    let store = Shared::new();
    let own = TopicSettings { durability: Some(durability), ..TopicSettings::default() };
    let mut settings = prombus_bus::Settings { group_lease: LEASE, ..unlimited() };
    settings.topics = [(orders(), own)].into_iter().collect();
    let engine: Arc<dyn Engine> = store.0.clone();
    let harness = Harness::numbered(1, engine, settings);
    let consumer = harness.consumer(at_most(10)).await;
    store.0.damage(&orders(), 1, 3);
    harness.publish(&orders(), 3).await;
    tokio::time::sleep(A_LOOK).await;
    !consumer.arrived().await.is_empty()
}

#[tokio::test(start_paused = true)]
async fn events_that_an_election_could_roll_back_are_delivered_once_they_are_safe() {
    assert!(is_delivered_from_memory(Durability::Fsync).await);
    assert!(!is_delivered_from_memory(Durability::Buffered).await);
}

#[tokio::test(start_paused = true)]
async fn topic_settings_reach_every_gateway() {
    let store = Shared::new();
    let (one, two) = (store.gateway(1), store.gateway(2));
    two.harness.publish(&orders(), 1).await;
    let own = TopicSettings { retention_bytes: Some(1), ..TopicSettings::default() };
    one.harness.bus.configure_topic(&orders(), own).await.unwrap();
    assert_eq!(stored(store.0.as_ref(), &orders()).await.len(), 0);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(two.harness.bus.topic(&orders()).await.unwrap().own, own);
    // The remaining gateway applies it.
    drop(one);
    two.harness.publish(&orders(), 3).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(stored(store.0.as_ref(), &orders()).await.len(), 0);
}
