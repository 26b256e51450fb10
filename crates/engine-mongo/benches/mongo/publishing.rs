//! Through the bus, as gateways and HTTP publish: every publisher is a connection with a window of
//! publishes in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prombus_bus::{
    Bus, ConfiguredTopics, MemoryLimits, PendingCommit, PublishBatch, RetryDelays, Settings,
    SubscriptionDefaults, TopicSettings,
};
use prombus_proto::SystemClock;
use tokio::task::JoinSet;

use crate::load::{EACH, Load, new_engine, new_ids};

/// Returns events per second.
pub(crate) async fn rate(url: &str, load: Load) -> f64 {
    let (engine, _) = new_engine(url).await;
    let own = TopicSettings { durability: Some(load.durability), ..TopicSettings::default() };
    let topics: ConfiguredTopics =
        (0..load.writers).map(|writer| (load.topic_of(writer), own)).collect();
    let settings = Settings {
        connection_rate: None,
        connection_bytes_per_sec: None,
        principal_rate: None,
        max_counts: None,
        topic_rate: None,
        topics,
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
    };
    let bus = Arc::new(Bus::start(engine, settings, Arc::new(SystemClock), Arc::new(new_ids())));
    let began = Instant::now();
    let mut running = JoinSet::new();
    for writer in 0..load.writers {
        let bus = bus.clone();
        running.spawn(async move {
            let (connection, topic) = (bus.connect(), load.topic_of(writer));
            let mut in_flight: VecDeque<PendingCommit> = VecDeque::new();
            let mut count = 0;
            loop {
                let is_running = began.elapsed() < EACH;
                if is_running && in_flight.len() < load.window {
                    let mut batch = PublishBatch::new();
                    let events = load.new_events().into_iter();
                    batch.push(&bus, &connection, &topic, events).unwrap();
                    in_flight.push_back(batch.submit(&bus).await.unwrap());
                    continue;
                }
                let Some(mut first) = in_flight.pop_front() else { return count };
                count += first.stored().await.unwrap().len();
            }
        });
    }
    let count: usize = running.join_all().await.into_iter().sum();
    let rate = count as f64 / began.elapsed().as_secs_f64();
    bus.close().await.unwrap();
    rate
}
