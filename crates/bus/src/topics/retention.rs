//! The task that applies the retention rules of all topics, periodically.

use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{CommitError, Engine, Retention};
use prombus_proto::{Clock, Topic};

use crate::topics::Topics;
use crate::topics::configure::load_topic_settings;

const INTERVAL: Duration = Duration::from_secs(30);

pub(crate) async fn run(engine: Arc<dyn Engine>, topics: Arc<Topics>, clock: Arc<dyn Clock>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    let is_alone = !engine.capabilities().several_gateways;
    loop {
        ticks.tick().await;
        if !is_alone && !renew_rules(engine.as_ref(), &topics, clock.as_ref()).await {
            continue;
        }
        for (topic, rule) in topics.retentions() {
            apply(engine.as_ref(), &topic, &rule).await;
        }
    }
}

/// Gives the rules a new revision, so that they supersede the rules that other gateways applied.
/// Loads the settings that those gateways stored first. Returns whether that succeeded.
async fn renew_rules(engine: &dyn Engine, topics: &Topics, clock: &dyn Clock) -> bool {
    let revision = clock.now().0;
    if let Err(refusal) = load_topic_settings(engine, topics).await {
        tracing::warn!(
            "cannot load the topic settings: {refusal}; no retention until the next pass"
        );
        return false;
    }
    topics.raise_revision(revision);
    true
}

async fn apply(engine: &dyn Engine, topic: &Topic, rule: &Retention) {
    match engine.retain(topic, rule).await {
        Ok(bounds) => tracing::trace!(%topic, first = %bounds.first, "retention applied"),
        // The settings have changed in the meantime.
        Err(CommitError::StaleRule { .. }) => {}
        // The engine is closing: no fault of the topic.
        Err(CommitError::Unavailable(reason)) => {
            tracing::debug!(%topic, "retention not applied: {reason}");
        }
        Err(error) => {
            tracing::warn!(%topic, "cannot apply the retention rule: {error}; retrying in {INTERVAL:?}");
        }
    }
}
