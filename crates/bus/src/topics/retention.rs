//! Forgets what topics no longer have to keep, now and then.

use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{CommitError, Engine, Retention};
use prombus_proto::{Clock, Topic};

use crate::topics::Topics;
use crate::topics::configure::recall_settings;

/// How often topics are looked at.
const INTERVAL: Duration = Duration::from_secs(30);

/// Applies the rules of `topics` for ever.
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

/// Makes the rules those of now, so that they count as newer than what another gateway applied
/// earlier. They have to be: what that one was told is read first.
async fn renew_rules(engine: &dyn Engine, topics: &Topics, clock: &dyn Clock) -> bool {
    let revision = clock.now().0;
    if let Err(refusal) = recall_settings(engine, topics).await {
        tracing::warn!("no retention: {refusal}");
        return false;
    }
    topics.renew(revision);
    true
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
