//! A bus under test, with publishers and consumers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prombus_bus::cursor::Cursor;
use prombus_bus::{
    Acked, AfterNack, Bus, ConfiguredTopics, Connection, Delivery, GroupInfo, MemoryLimits,
    PublishBatch, Refusal, RetryDelays, Settings, StartAt, SubscribeOptions, Subscription,
    SubscriptionDefaults,
};
use prombus_engine::{
    DiskEngine, DiskOptions, Engine, MemoryEngine, Position, ReadBudget, StoredEvent,
};
use prombus_proto::{
    EventId, Group, IdSource, ManualClock, NewEvent, Payload, SeededRandom, Seq, Timestamp, Topic,
};

/// The time of the wall clock in every harness.
pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A bus over an engine that outlives it.
pub(crate) struct Harness {
    pub(crate) bus: Bus,
    pub(crate) engine: Arc<dyn Engine>,
    /// The wall clock of the bus, which stands still unless [`Harness::pass`] moves it. The engine has its own.
    pub(crate) clock: ManualClock,
    settings: Settings,
    ids: Arc<IdSource>,
}

/// A connection with one subscription.
pub(crate) struct Consumer {
    pub(crate) connection: Connection,
    pub(crate) subscription: Subscription,
    /// The group as it was joined.
    pub(crate) info: GroupInfo,
}

/// No rate limits, and the defaults of the protocol.
pub(crate) fn unlimited() -> Settings {
    Settings {
        connection_rate: None,
        connection_bytes_per_sec: None,
        principal_rate: None,
        max_counts: None,
        topic_rate: None,
        topics: ConfiguredTopics::default(),
        max_outbox_bytes: 1 << 20,
        memory: MemoryLimits::of_each(64 << 20),
        subscription: SubscriptionDefaults {
            max_in_flight: 100,
            ack_timeout: Duration::from_secs(30),
            max_attempts: 5,
        },
        retry: RetryDelays {
            first: Duration::from_secs(1),
            factor: 5,
            max: Duration::from_secs(600),
        },
        group_lease: Duration::from_secs(10),
        spans: None,
    }
}

pub(crate) fn named(topic: &str) -> Topic {
    Topic::new(topic).unwrap()
}

pub(crate) fn orders() -> Topic {
    named("orders")
}

pub(crate) fn billing() -> Group {
    Group::new("billing").unwrap()
}

pub(crate) fn from(start: StartAt) -> SubscribeOptions {
    SubscribeOptions { start, max_in_flight: None, ack_timeout: None, max_attempts: None }
}

/// From the first event, with `max_in_flight` leases at a time.
pub(crate) fn at_most(max_in_flight: u32) -> SubscribeOptions {
    SubscribeOptions { max_in_flight: Some(max_in_flight), ..from(StartAt::Earliest) }
}

pub(crate) fn event(payload: &str) -> NewEvent {
    NewEvent::of(Payload::parse(Bytes::copy_from_slice(payload.as_bytes())).unwrap())
}

/// An event whose JSON has about `bytes` bytes.
pub(crate) fn large_event(bytes: usize) -> NewEvent {
    event(&format!("\"{}\"", "x".repeat(bytes)))
}

pub(crate) fn memory() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new(Arc::new(ManualClock::at(NOW))))
}

pub(crate) fn disk(folder: &std::path::Path) -> Arc<dyn Engine> {
    Arc::new(DiskEngine::open(&DiskOptions::at(folder)).unwrap())
}

/// Lets all tasks run until they wait for time. Advances the paused clock by a millisecond.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// All events of `topic`.
pub(crate) async fn stored(engine: &dyn Engine, topic: &Topic) -> Vec<StoredEvent> {
    let mut events: Vec<StoredEvent> = Vec::new();
    loop {
        let next = events.last().map_or(Seq::ZERO, |last| last.seq.next());
        let page = engine.read(topic, next, ReadBudget::of_events(1000)).await.unwrap();
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
    }
}

pub(crate) async fn stored_cursor(engine: &dyn Engine, topic: &Topic, group: &Group) -> Cursor {
    let entry = engine.get(&Cursor::key(topic, group).unwrap()).await.unwrap();
    Cursor::decode(&entry.expect("the group has a cursor").value).unwrap()
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(unlimited())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self::over(memory(), settings)
    }

    pub(crate) fn over(engine: Arc<dyn Engine>, settings: Settings) -> Self {
        Self::numbered(1, engine, settings)
    }

    /// One of several gateways over one store, each with its own random source.
    pub(crate) fn numbered(number: u64, engine: Arc<dyn Engine>, settings: Settings) -> Self {
        let clock = ManualClock::at(NOW);
        let random = Arc::new(SeededRandom::new(number));
        let ids = Arc::new(IdSource::new(Arc::new(clock.clone()), random));
        Self::resume(engine, settings, clock, ids)
    }

    fn resume(
        engine: Arc<dyn Engine>,
        settings: Settings,
        clock: ManualClock,
        ids: Arc<IdSource>,
    ) -> Self {
        let bus_clock = Arc::new(clock.clone());
        let bus = Bus::start(Arc::clone(&engine), settings.clone(), bus_clock, Arc::clone(&ids));
        Self { bus, engine, clock, settings, ids }
    }

    /// Lets `time` pass on both clocks.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.advance_ms(u64::try_from(time.as_millis()).unwrap());
        tokio::time::sleep(time).await;
    }

    /// Drops the bus without closing it, and starts a new one over the same engine.
    pub(crate) fn restart(self) -> Self {
        let Self { bus, engine, clock, settings, ids } = self;
        drop(bus);
        Self::resume(engine, settings, clock, ids)
    }

    /// Closes the bus, and starts a new one over the same engine.
    pub(crate) async fn close_and_restart(self) -> Self {
        self.bus.close().await.unwrap();
        self.restart()
    }

    /// Drops the bus without closing it, and returns a function that starts one over another engine.
    pub(crate) fn stop(self) -> impl FnOnce(Arc<dyn Engine>) -> Self {
        let Self { clock, settings, ids, .. } = self;
        |engine| Self::resume(engine, settings, clock, ids)
    }

    pub(crate) fn batch(
        &self,
        connection: &Connection,
        topic: &Topic,
        events: Vec<NewEvent>,
    ) -> Result<PublishBatch, Refusal> {
        let mut batch = PublishBatch::new();
        batch.push(&self.bus, connection, topic, events.into_iter())?;
        Ok(batch)
    }

    pub(crate) async fn try_publish(
        &self,
        connection: &Connection,
        topic: &Topic,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Position>, Refusal> {
        let batch = self.batch(connection, topic, events)?;
        batch.submit(&self.bus).await?.stored().await
    }

    /// Publishes `count` small events, and returns their ids.
    pub(crate) async fn publish(&self, topic: &Topic, count: usize) -> Vec<EventId> {
        let mut ids = Vec::new();
        for chunk in (0..count).collect::<Vec<_>>().chunks(1000) {
            let events = chunk.iter().map(|number| event(&number.to_string())).collect();
            let batch = self.batch(&self.bus.connect(), topic, events).unwrap();
            ids.extend(batch.ids().cloned());
            batch.submit(&self.bus).await.unwrap().stored().await.unwrap();
        }
        ids
    }

    pub(crate) async fn try_subscribe(
        &self,
        topic: &Topic,
        options: SubscribeOptions,
    ) -> Result<Consumer, Refusal> {
        let connection = self.bus.connect();
        let (subscription, info) =
            self.bus.subscribe(&connection, topic, &billing(), options).await?;
        Ok(Consumer { connection, subscription, info })
    }

    /// Subscribes to the group billing on orders.
    pub(crate) async fn consumer(&self, options: SubscribeOptions) -> Consumer {
        self.try_subscribe(&orders(), options).await.unwrap()
    }

    /// Subscribes to a group on orders.
    pub(crate) async fn consumer_of(&self, group: &str, options: SubscribeOptions) -> Consumer {
        let (connection, group) = (self.bus.connect(), Group::new(group).unwrap());
        let joined = self.bus.subscribe(&connection, &orders(), &group, options).await;
        let (subscription, info) = joined.unwrap();
        Consumer { connection, subscription, info }
    }

    /// Returns the dead letters of orders.
    pub(crate) async fn dead_letters(&self) -> Vec<StoredEvent> {
        stored(self.engine.as_ref(), &named("dlq.orders")).await
    }

    pub(crate) async fn cursor(&self) -> Cursor {
        stored_cursor(self.engine.as_ref(), &orders(), &billing()).await
    }
}

impl Consumer {
    /// Waits for the next delivery.
    pub(crate) async fn next(&self) -> Delivery {
        let mut taken = Vec::new();
        loop {
            self.connection.delivery_queue.take(1, &mut taken);
            if let Some(delivery) = taken.pop() {
                return delivery;
            }
            self.connection.delivery_queue.filled().await;
        }
    }

    /// Returns the next delivery, or `None` after `time`.
    pub(crate) async fn next_within(&self, time: Duration) -> Option<Delivery> {
        tokio::time::timeout(time, self.next()).await.ok()
    }

    /// Returns the deliveries that arrive without time passing.
    pub(crate) async fn arrived(&self) -> Vec<Delivery> {
        settle().await;
        let mut taken = Vec::new();
        self.connection.delivery_queue.take(usize::MAX, &mut taken);
        taken
    }

    pub(crate) async fn ack(&self, ids: Vec<EventId>) -> Acked {
        self.subscription.ack(ids, None, None).await.unwrap().unwrap()
    }

    /// Nacks `delivery`, with a delay.
    pub(crate) async fn nack(&self, delivery: &Delivery, rest: Option<Duration>) {
        self.nack_because(delivery, Some("no stock"), rest).await;
    }

    pub(crate) async fn nack_because(
        &self,
        delivery: &Delivery,
        reason: Option<&str>,
        rest: Option<Duration>,
    ) {
        let ids = vec![delivery.event.id.clone()];
        let next = rest.map_or(AfterNack::BackOff, AfterNack::Delay);
        let nacked = self.subscription.nack(ids, reason.map(str::to_owned), next);
        assert!(!nacked.await.unwrap().unwrap().stale);
    }
}

pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<EventId> {
    deliveries.iter().map(|delivery| delivery.event.id.clone()).collect()
}

pub(crate) fn seqs(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.event.seq.0).collect()
}

pub(crate) fn attempts(deliveries: &[Delivery]) -> Vec<u32> {
    deliveries.iter().map(|delivery| delivery.attempt).collect()
}
