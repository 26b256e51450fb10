//! A bus in this process, without rate limits.
//!
//! - `publishing`: a connection that publishes
//! - `consuming`: a connection that consumes

mod consuming;
mod publishing;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prombus_bus::{
    Bus, Durability, MemoryLimits, RetryDelays, Settings, StartAt, SubscribeOptions, Subscription,
    SubscriptionDefaults, TopicSettings,
};
use prombus_engine::Engine;
use prombus_proto::{Group, IdSource, SystemClock, Topic};

pub(crate) use consuming::InProcessConsumer;
pub(crate) use publishing::InProcessPublisher;

use crate::target::LEASE;
use crate::{BenchError, Load};

/// The server's default.
const DELIVERY_QUEUE_BYTES: usize = 1 << 20;
/// The smallest of the server's default budgets.
const BUFFER_BYTES: usize = 64 << 20;
const GROUP_LEASE: Duration = Duration::from_secs(10);

/// A bus in this process.
pub struct InProcess {
    bus: Arc<Bus>,
}

impl InProcess {
    /// Starts a bus over `engine`, and gives the topics of `load` this durability. It has to be
    /// called within a Tokio runtime.
    pub fn start(
        engine: Arc<dyn Engine>,
        load: &Load,
        durability: Durability,
    ) -> Result<Self, BenchError> {
        let own = TopicSettings { durability: Some(durability), ..TopicSettings::default() };
        let settings = Settings {
            connection_rate: None,
            connection_bytes_per_sec: None,
            principal_rate: None,
            max_counts: None,
            topic_rate: None,
            topics: load.topics()?.into_iter().map(|topic| (topic, own)).collect(),
            max_outbox_bytes: DELIVERY_QUEUE_BYTES,
            memory: MemoryLimits::of_each(BUFFER_BYTES),
            subscription: SubscriptionDefaults {
                max_in_flight: 100,
                ack_timeout: LEASE,
                max_attempts: 5,
            },
            retry: RetryDelays {
                first: Duration::from_secs(1),
                factor: 5,
                max: Duration::from_secs(600),
            },
            group_lease: GROUP_LEASE,
            spans: None,
        };
        let ids = Arc::new(IdSource::system());
        Ok(Self { bus: Arc::new(Bus::start(engine, settings, Arc::new(SystemClock), ids)) })
    }

    /// Stores pending events and closes the engine.
    pub async fn close(&self) -> Result<(), BenchError> {
        Ok(self.bus.close().await?)
    }

    pub(crate) fn publisher(&self, topics: &[Topic]) -> InProcessPublisher {
        InProcessPublisher::new(Arc::clone(&self.bus), topics)
    }

    /// Returns a consumer that subscribes to `topics`, each with room for `in_flight` events.
    pub(crate) async fn consumer(
        &self,
        topics: &[Topic],
        group: &Group,
        in_flight: u32,
    ) -> Result<InProcessConsumer, BenchError> {
        let connection = self.bus.connect();
        let mut subscriptions: HashMap<Topic, Subscription> = HashMap::new();
        for topic in topics {
            let options = SubscribeOptions {
                start: StartAt::Latest,
                max_in_flight: Some(in_flight),
                ack_timeout: Some(LEASE),
                max_attempts: None,
            };
            let (subscription, _) = self.bus.subscribe(&connection, topic, group, options).await?;
            subscriptions.insert(topic.clone(), subscription);
        }
        Ok(InProcessConsumer::new(connection.delivery_queue, subscriptions))
    }
}
