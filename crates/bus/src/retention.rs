//! Forgets what topics no longer have to keep, now and then.

use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{CommitError, Engine, Retention};
use prombus_proto::Topic;

use crate::topics::Topics;

/// How often topics are looked at.
const INTERVAL: Duration = Duration::from_secs(30);

/// Applies the rules of `topics` for ever.
pub(crate) async fn run(engine: Arc<dyn Engine>, topics: Arc<Topics>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        for (topic, rule) in topics.retentions() {
            apply(engine.as_ref(), &topic, &rule).await;
        }
    }
}

async fn apply(engine: &dyn Engine, topic: &Topic, rule: &Retention) {
    match engine.retain(topic, rule).await {
        Ok(bounds) => tracing::trace!(%topic, first = %bounds.first, "retention applied"),
        // Somebody set a newer one meanwhile.
        Err(CommitError::StaleRule { .. }) => {}
        // The engine is about to close; there is nothing to say about topics any more.
        Err(CommitError::Unavailable(reason)) => tracing::debug!(%topic, "no retention: {reason}"),
        Err(error) => tracing::warn!(%topic, "cannot apply the retention rule: {error}"),
    }
}
