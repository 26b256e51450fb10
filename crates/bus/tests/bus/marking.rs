//! Marks of handled events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use prombus_bus::{
    Acked, AckedAndMarked, AfterNack, Charges, DEFAULT_MARK_TTL, PublishBatch, Rate, Refusal,
    Settings, StartAt,
};
use prombus_engine::delegating::DelegatingEngine;
use prombus_engine::{CommitError, Engine, Faults, FaultyEngine, MemoryEngine, ReadError};
use prombus_proto::{ErrorCode, EventId, Group, ManualClock, Seq, Topic};
use tokio::sync::Notify;

use crate::harness::{
    Consumer, Harness, NOW, at_most, billing, disk, event, from, ids, memory, named, orders, seqs,
    settle, stored, unlimited,
};
use crate::watched_engine::WatchedEngine;

fn id(text: &str) -> EventId {
    EventId::new(text).unwrap()
}

fn invoice(harness: &Harness) -> PublishBatch {
    harness.batch(&harness.bus.connect(), &named("invoices"), vec![event("1")]).unwrap()
}

async fn mark(harness: &Harness, group: &Group, ids: &[EventId], ttl: Duration) {
    let connection = harness.bus.connect();
    let mut marking = harness.bus.mark(&connection, &orders(), group, ids, ttl).await.unwrap();
    marking.stored().await.unwrap();
}

fn ack_and_mark(
    harness: &Harness,
    consumer: &Consumer,
    ids: Vec<EventId>,
) -> impl Future<Output = Result<Acked, Refusal>> + use<> {
    let until = harness.bus.marked_until(DEFAULT_MARK_TTL);
    let acked = harness.bus.ack_and_mark(&consumer.subscription, ids, until, Charges::default());
    async move {
        let AckedAndMarked { acked, stale_marked } = acked.await?;
        stale_marked.map(|()| acked)
    }
}

async fn seen(harness: &Harness, ids: &[EventId]) -> Vec<EventId> {
    harness.bus.seen(&orders(), &billing(), ids.to_vec()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_mark_belongs_to_one_group_on_one_topic() {
    let harness = Harness::new();
    let all = ["a", "b", "c"].map(id);
    assert!(seen(&harness, &all).await.is_empty());
    mark(&harness, &billing(), &[id("c"), id("a")], DEFAULT_MARK_TTL).await;
    assert_eq!(seen(&harness, &all).await, ["a", "c"].map(id), "in the order that was asked");
    let other = Group::new("other").unwrap();
    assert!(harness.bus.seen(&orders(), &other, all.to_vec()).await.unwrap().is_empty());
    let elsewhere = harness.bus.seen(&named("orders.eu"), &billing(), all.to_vec()).await.unwrap();
    assert!(elsewhere.is_empty());
}

#[tokio::test(start_paused = true)]
async fn marks_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let harness = Harness::over(disk(folder.path()), unlimited());
    // The store uses the real time, which is long after the harness's.
    let century = Duration::from_secs(100 * 365 * 86_400);
    mark(&harness, &billing(), &[id("a")], century).await;
    harness.bus.close().await.unwrap();
    let go_on = harness.stop();
    let harness = go_on(disk(folder.path()));
    assert_eq!(seen(&harness, &[id("a"), id("b")]).await, [id("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_mark_expires_and_marking_again_restarts_its_time() {
    let clock = Arc::new(ManualClock::at(NOW));
    let harness = Harness::over(Arc::new(MemoryEngine::new(clock.clone())), unlimited());
    let both = ["a", "b"].map(id);
    mark(&harness, &billing(), &both, Duration::from_secs(5)).await;
    mark(&harness, &billing(), &both[1..], Duration::from_secs(10)).await;
    clock.advance_ms(4_999);
    assert_eq!(seen(&harness, &both).await, both);
    clock.advance_ms(1);
    assert_eq!(seen(&harness, &both).await, both[1..]);
    clock.advance_ms(5_000);
    assert!(seen(&harness, &both).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn marking_takes_tokens_from_the_connection() {
    let rate = Rate { capacity: 3, refill_per_sec: 1 };
    let harness = Harness::with(Settings { connection_rate: Some(rate), ..unlimited() });
    let connection = harness.bus.connect();
    let mark = |ids: Vec<EventId>| {
        let (bus, connection) = (&harness.bus, &connection);
        async move { bus.mark(connection, &orders(), &billing(), &ids, DEFAULT_MARK_TTL).await }
    };
    mark(["a", "b"].map(id).into()).await.unwrap().stored().await.unwrap();
    let refusal = mark(["c", "d"].map(id).into()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::RateLimited);
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(1)));
    assert!(seen(&harness, &[id("c")]).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_ack_its_marks_and_its_events_are_one_commit() {
    let engine = WatchedEngine::over(memory());
    let harness = Harness::over(engine.clone(), unlimited());
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = ids(&consumer.arrived().await);
    engine.take_commits();
    let until = harness.bus.marked_until(DEFAULT_MARK_TTL);
    let acked = consumer.subscription.ack(delivered.clone(), Some(until), Some(invoice(&harness)));
    assert_eq!(acked.await.unwrap().unwrap().published.len(), 1);
    assert_eq!(engine.take_commits().len(), 1);
    assert_eq!(seen(&harness, &delivered).await, delivered);
    assert_eq!(harness.cursor().await.floor, Seq(2));
}

#[tokio::test(start_paused = true)]
async fn an_ack_of_a_marked_event_publishes_nothing_and_keeps_the_lease() {
    let harness = Harness::new();
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = ids(&consumer.arrived().await);
    mark(&harness, &billing(), &delivered[1..], DEFAULT_MARK_TTL).await;
    let until = harness.bus.marked_until(DEFAULT_MARK_TTL);
    let acked = consumer.subscription.ack(delivered.clone(), Some(until), Some(invoice(&harness)));
    let refusal = acked.await.unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::Conflict);
    assert!(stored(harness.engine.as_ref(), &named("invoices")).await.is_empty());
    assert_eq!(seen(&harness, &delivered).await, delivered[1..], "the other is not marked");
    assert!(consumer.ack(delivered).await.stale.is_empty(), "both are still leased");
}

/// The handler ran longer than its lease: the event belongs to another member, but it was handled.
#[tokio::test(start_paused = true)]
async fn a_late_ack_still_marks() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let slow = harness.consumer(at_most(10)).await;
    let handled = ids(&[slow.next().await]);
    slow.subscription.pause().await.unwrap().unwrap();
    let other = harness.consumer(at_most(10)).await;
    let again = ids(&[other.next().await]);
    assert_eq!(handled, again);
    let acked = ack_and_mark(&harness, &slow, handled.clone()).await.unwrap();
    assert_eq!(acked.stale, [0]);
    assert_eq!(seen(&harness, &handled).await, handled);
    let until = Some(harness.bus.marked_until(DEFAULT_MARK_TTL));
    let refused = other.subscription.ack(again.clone(), until, Some(invoice(&harness)));
    assert_eq!(refused.await.unwrap().unwrap_err().code, ErrorCode::Conflict);
    assert!(other.ack(again).await.stale.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_ack_marks_no_unknown_ids() {
    let harness = Harness::new();
    harness.publish(&orders(), 1).await;
    let consumer = harness.consumer(at_most(10)).await;
    let lent = consumer.next().await.event.id;
    let both = vec![id("made up"), lent.clone()];
    let acked = ack_and_mark(&harness, &consumer, both.clone()).await.unwrap();
    assert_eq!(acked.stale, [0]);
    assert_eq!(seen(&harness, &both).await, [lent]);
    let acked = ack_and_mark(&harness, &consumer, both[..1].to_vec()).await.unwrap();
    assert_eq!(acked.stale, [0]);
    assert!(seen(&harness, &both[..1]).await.is_empty());
}

/// Lookups by id wait until they are let go.
struct SlowLookups {
    inner: Arc<dyn Engine>,
    waiting: AtomicUsize,
    release: Notify,
}

#[async_trait]
impl DelegatingEngine for SlowLookups {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    async fn seek_ids(
        &self,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<Vec<Option<Seq>>, ReadError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.release.notified().await;
        self.inner.seek_ids(topic, ids).await
    }

    async fn close(&self) -> Result<(), CommitError> {
        self.inner.close().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_of_made_up_ids_holds_up_nobody_but_its_sender() {
    let (waiting, release) = (AtomicUsize::new(0), Notify::new());
    let engine = Arc::new(SlowLookups { inner: memory(), waiting, release });
    let harness = Harness::over(engine.clone(), unlimited());
    harness.publish(&orders(), 3).await;
    let attacker = harness.consumer(at_most(1)).await;
    let own = ids(&[attacker.next().await]);
    let mixed = vec![id("made up"), own[0].clone()];
    let late = tokio::spawn(ack_and_mark(&harness, &attacker, mixed.clone()));
    settle().await;
    assert_eq!(engine.waiting.load(Ordering::SeqCst), 1, "the lookup is under way");
    // What it was leased is acknowledged and marked already, and it gets the next event.
    assert_eq!(seen(&harness, &mixed).await, own);
    assert_eq!(seqs(&attacker.arrived().await), [2]);
    let other = harness.consumer(at_most(1)).await;
    let delivered = other.arrived().await;
    assert_eq!(seqs(&delivered), [3]);
    assert!(other.ack(ids(&delivered)).await.stale.is_empty());
    assert!(!late.is_finished());
    engine.release.notify_one();
    assert_eq!(late.await.unwrap().unwrap().stale, [0]);
}

#[tokio::test(start_paused = true)]
async fn lookups_take_a_token_per_hundred_ids() {
    let rate = Rate { capacity: 3, refill_per_sec: 1 };
    let harness = Harness::with(Settings { connection_rate: Some(rate), ..unlimited() });
    let connection = harness.bus.connect();
    harness.bus.charge_lookup(&connection, 200).unwrap();
    let refusal = harness.bus.charge_lookup(&connection, 101).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::RateLimited);
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(1)));
    harness.bus.charge_lookup(&connection, 1).unwrap();
}

/// Acknowledgements of ids that are not leased are answered whatever they cost. Their sender owes the
/// tokens that it does not have, and gets nothing more until it has paid.
#[tokio::test(start_paused = true)]
async fn acks_of_ids_that_are_not_leased_take_tokens() {
    let rate = Rate { capacity: 4, refill_per_sec: 2 };
    let harness = Harness::with(Settings { connection_rate: Some(rate), ..unlimited() });
    let consumer = harness.consumer(at_most(10)).await;
    let limit = &consumer.connection.limit;
    let owes_until = || limit.pays_debt_at(tokio::time::Instant::now().into_std());
    let made_up = |count: usize| (0..count).map(|n| id(&n.to_string())).collect::<Vec<_>>();
    assert_eq!(consumer.ack(made_up(400)).await.stale.len(), 400);
    assert_eq!(owes_until(), None);
    let now = tokio::time::Instant::now().into_std();
    let next = AfterNack::BackOff;
    assert!(consumer.subscription.nack(made_up(101), None, next).await.unwrap().unwrap().stale);
    assert_eq!(owes_until(), Some(now + Duration::from_secs(1)));
    // However much it costs, a debt is paid within a second.
    consumer.ack(made_up(10_000)).await;
    assert_eq!(owes_until(), Some(now + Duration::from_secs(1)));
    harness.publish(&orders(), 1).await;
    assert!(consumer.next_within(Duration::from_millis(1_400)).await.is_none());
    consumer.next_within(Duration::from_millis(200)).await.unwrap();
}

/// An acknowledgement that has to go into another commit costs no more.
#[tokio::test(start_paused = true)]
async fn an_ack_takes_the_tokens_for_its_lookups_once() {
    let rate = Rate { capacity: 1000, refill_per_sec: 1 };
    let faults = Faults::none();
    let engine = Arc::new(FaultyEngine::new(memory(), faults.clone()));
    let harness = Harness::over(engine, Settings { connection_rate: Some(rate), ..unlimited() });
    harness.publish(&orders(), 2).await;
    let consumer = harness.consumer(at_most(10)).await;
    let delivered = ids(&consumer.arrived().await);
    faults.shut_gate();
    let first = consumer.subscription.ack(delivered[..1].to_vec(), None, None);
    faults.until_waiting(1).await;
    let made_up = (0..9_000).map(|number| id(&number.to_string()));
    let mixed = delivered[1..].iter().cloned().chain(made_up).collect();
    let second = consumer.subscription.ack(mixed, None, None);
    settle().await;
    // The first is stored, which the group finds out when it reads its cursor, and begins the second anew.
    faults.fail_commits_after(1);
    faults.open_gate();
    assert!(first.await.unwrap().unwrap().stale.is_empty());
    assert_eq!(second.await.unwrap().unwrap().stale.len(), 9_000);
    let left = consumer.connection.limit.available(tokio::time::Instant::now().into_std());
    assert!((900..920).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn many_marks_take_several_commits() {
    let engine = WatchedEngine::over(memory());
    let harness = Harness::over(engine.clone(), unlimited());
    let long = |number: usize| id(&format!("{number:0>256}"));
    for chunk in (0..30_000).collect::<Vec<_>>().chunks(1000) {
        let events = chunk.iter().map(|number| {
            let mut event = event("1");
            event.id = Some(long(*number));
            event
        });
        let connection = harness.bus.connect();
        harness.try_publish(&connection, &orders(), events.collect()).await.unwrap();
    }
    // They are stale, so they are looked up, and committed apart from the acknowledgement.
    let consumer = harness.consumer(from(StartAt::Latest)).await;
    engine.take_commits();
    let acked: Vec<_> = (0..30_000)
        .collect::<Vec<_>>()
        .chunks(10_000)
        .map(|chunk| chunk.iter().map(|number| long(*number)).collect::<Vec<_>>())
        .map(|ids| ack_and_mark(&harness, &consumer, ids))
        .collect();
    for acked in acked {
        assert_eq!(acked.await.unwrap().stale.len(), 10_000);
    }
    assert!(engine.take_commits().len() > 1);
    assert_eq!(seen(&harness, &[long(0), long(29_999), long(30_000)]).await.len(), 2);
}
