//! Forgets what topics no longer have to keep, now and then.

use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{CommitError, Engine, Retention};
use prombus_proto::Topic;

use crate::settings::Settings;

/// How often topics are looked at.
const INTERVAL: Duration = Duration::from_secs(30);

/// Applies the rules in `settings` for ever. `revision` says which rules are newer than those of
/// earlier runs.
pub(crate) async fn run(engine: Arc<dyn Engine>, settings: Arc<Settings>, revision: u64) {
    let rules: Vec<_> =
        settings.topics.iter().filter_map(|(topic, own)| Some((topic, own.retention?))).collect();
    if rules.is_empty() {
        return;
    }
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        for (topic, rule) in &rules {
            apply(engine.as_ref(), topic, &Retention { revision, ..*rule }).await;
        }
    }
}

async fn apply(engine: &dyn Engine, topic: &Topic, rule: &Retention) {
    match engine.retain(topic, rule).await {
        Ok(bounds) => tracing::trace!(%topic, first = %bounds.first, "retention applied"),
        // The engine is about to close; there is nothing to say about topics any more.
        Err(CommitError::Unavailable(reason)) => tracing::debug!(%topic, "no retention: {reason}"),
        Err(error) => tracing::warn!(%topic, "cannot apply the retention rule: {error}"),
    }
}
