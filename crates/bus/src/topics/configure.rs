//! Topic settings that are changed at run time. They are stored, take effect immediately, and survive
//! a restart.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{CommitError, Durability, Engine, Expect, StateOp};
use prombus_proto::{ErrorCode, Topic};
use tokio::time::MissedTickBehavior;

use crate::bus::Bus;
use crate::error::Refusal;
use crate::publish::Submission;
use crate::stored::{StatePages, topic_settings};
use crate::time::now;
use crate::topics::retention::retain;
use crate::topics::{TopicSettings, Topics};

impl Bus {
    /// Replaces the run-time settings of `topic`. Those that `own` leaves out fall back to the
    /// configuration.
    ///
    /// # Errors
    ///
    /// If the bus is shutting down, the topic does not exist and there are too many, or the settings cannot
    /// be stored.
    pub async fn configure_topic(&self, topic: &Topic, own: TopicSettings) -> Result<(), Refusal> {
        self.check_open()?;
        // Concurrent changes are applied in the order in which they are stored.
        let _lock = self.topics_in_use().lock_settings().await;
        let census = self.topics_in_use().census();
        let permit = census.permit_topic(topic)?;
        let key = topic_settings::key(topic)
            .map_err(|error| Refusal::new(ErrorCode::BadTopic, error.to_string()))?;
        let put = StateOp::Put {
            key,
            value: topic_settings::encode(&own).into(),
            expires_at: None,
            expect: Expect::Any,
        };
        self.store(Submission::of_state(vec![put], Durability::Fsync)).await?;
        census.topic_created(topic);
        drop(permit);
        let revision = self.clock().now().0;
        let mut rule = self.topics_in_use().set_own(topic, own, revision, now());
        // Not left to the next retention pass: one may be running with the previous rule.
        loop {
            match retain(self.engine().as_ref(), self.metrics(), topic, &rule).await {
                Ok(_) => return Ok(()),
                // The clock of this or another gateway is or was ahead. Settings that another gateway
                // stored in the meantime are newer than these.
                Err(CommitError::StaleRule { applied, .. }) => {
                    let own = stored_settings(self.engine().as_ref(), topic).await?.unwrap_or(own);
                    rule = self.topics_in_use().set_own(topic, own, applied + 1, now());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Loads the stored settings of all topics. Call it before anything is published.
    ///
    /// # Errors
    ///
    /// If the settings cannot be read.
    pub async fn load_topic_settings(&self) -> Result<(), Refusal> {
        load_topic_settings(self.engine().as_ref(), self.topics_in_use()).await
    }
}

/// How often settings of other gateways are loaded.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Loads the settings that other gateways store, periodically.
pub(crate) async fn keep_settings_current(engine: Arc<dyn Engine>, topics: Arc<Topics>) {
    let mut ticks = tokio::time::interval(RELOAD_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(refusal) = load_topic_settings(engine.as_ref(), &topics).await {
            tracing::debug!(
                "cannot load the topic settings: {refusal}; retrying in {RELOAD_INTERVAL:?}"
            );
        }
    }
}

/// Loads the stored settings of `topic`.
pub(crate) async fn reload_settings(
    engine: &dyn Engine,
    topics: &Topics,
    topic: &Topic,
) -> Result<(), Refusal> {
    let _lock = topics.lock_settings().await;
    if let Some(own) = stored_settings(engine, topic).await? {
        topics.load_own(topic, own, now());
    }
    Ok(())
}

async fn stored_settings(
    engine: &dyn Engine,
    topic: &Topic,
) -> Result<Option<TopicSettings>, Refusal> {
    let Ok(key) = topic_settings::key(topic) else { return Ok(None) };
    let Some(entry) = engine.get(&key).await? else { return Ok(None) };
    let read = topic_settings::read(&entry)
        .map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
    Ok(read.map(|(_, own)| own))
}

/// Loads the stored settings of all topics.
pub(crate) async fn load_topic_settings(
    engine: &dyn Engine,
    topics: &Topics,
) -> Result<(), Refusal> {
    // Settings that are read before a change of this gateway must not be applied after it.
    let _lock = topics.lock_settings().await;
    let mut stored = HashSet::new();
    let mut pages = StatePages::new(engine, topic_settings::prefix());
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            topics.keep_own(&stored, now());
            return Ok(());
        }
        for entry in page {
            let read = topic_settings::read(&entry)
                .map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
            if let Some((topic, own)) = read {
                topics.load_own(&topic, own, now());
                stored.insert(topic);
            }
        }
    }
}
