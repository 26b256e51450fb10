//! The retention rules of topics: the task that applies them periodically, and what groups lose by it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{Bounds, CommitError, Engine, ReadError, Retention};
use prombus_proto::{Clock, Topic};

use crate::error::Refusal;
use crate::inspect::open_events;
use crate::metrics::Metrics;
use crate::stored::StatePages;
use crate::stored::cursor::Cursor;
use crate::topics::Topics;
use crate::topics::configure::{load_topic_settings, reload_settings};

const INTERVAL: Duration = Duration::from_secs(30);

/// The task that applies the rules of all topics, periodically.
pub(crate) struct RetentionTask {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
}

impl RetentionTask {
    pub(crate) async fn run(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        let is_alone = !self.engine.capabilities().several_gateways;
        let mut warned = HashSet::new();
        loop {
            ticks.tick().await;
            if !is_alone && !self.renew_rules().await {
                continue;
            }
            for (topic, rule) in self.topics.retentions() {
                self.apply(&topic, &rule, &mut warned).await;
            }
        }
    }

    /// Gives the rules a new revision, so that they supersede the rules that other gateways applied.
    /// Loads the settings that those gateways stored first. Returns whether that succeeded.
    async fn renew_rules(&self) -> bool {
        let revision = self.clock.now().0;
        if let Err(refusal) = load_topic_settings(self.engine.as_ref(), &self.topics).await {
            tracing::warn!(
                "cannot load the topic settings: {refusal}; no retention until the next pass"
            );
            return false;
        }
        self.topics.raise_revision(revision);
        true
    }

    /// Applies `rule`. Warns once about each topic whose newest rule is ahead of the clock.
    async fn apply(&self, topic: &Topic, rule: &Retention, warned: &mut HashSet<Topic>) {
        let mut result = self.retain(topic, rule).await;
        if let Err(CommitError::StaleRule { applied, .. }) = result {
            if applied > self.clock.now().0 && warned.insert(topic.clone()) {
                tracing::warn!(%topic, applied, "a retention rule was applied when the clock was ahead; \
                    later rules continue from its revision");
            }
            match self.current_rule(topic, applied).await {
                Ok(current) => result = self.retain(topic, &current).await,
                Err(refusal) => {
                    tracing::warn!(%topic, "cannot load the settings of the topic: {refusal}; \
                        retrying in {INTERVAL:?}");
                    return;
                }
            }
        }
        match result {
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

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        retain(self.engine.as_ref(), &self.metrics, topic, rule).await
    }

    /// Returns the rule of `topic` after the rule `applied`, which may come from another gateway. The
    /// settings are loaded now, so they are at least as new as that rule's, and its revision can be used
    /// again. It is not exceeded: a change of the settings needs a higher one.
    async fn current_rule(&self, topic: &Topic, applied: u64) -> Result<Retention, Refusal> {
        reload_settings(self.engine.as_ref(), &self.topics, topic).await?;
        let rule = self.topics.retention(topic);
        Ok(Retention { revision: rule.revision.max(applied), ..rule })
    }
}

/// Applies `rule`, and counts the events that groups lose by it.
pub(crate) async fn retain(
    engine: &dyn Engine,
    metrics: &Metrics,
    topic: &Topic,
    rule: &Retention,
) -> Result<Bounds, CommitError> {
    let before = engine.bounds(topic).await;
    let bounds = engine.retain(topic, rule).await?;
    if let Ok(before) = before
        && before.first < bounds.first
    {
        let removed = Bounds { next: bounds.first, ..before };
        if let Err(error) = count_losses(engine, metrics, topic, &removed).await {
            tracing::warn!(%topic, "cannot count the events that groups lost to retention: {error}");
        }
    }
    Ok(bounds)
}

/// Counts the events within the bounds `removed` that a group had not finished.
async fn count_losses(
    engine: &dyn Engine,
    metrics: &Metrics,
    topic: &Topic,
    removed: &Bounds,
) -> Result<(), ReadError> {
    let prefix = Cursor::prefix_of(topic);
    let mut pages = StatePages::new(engine, &prefix);
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Ok(());
        }
        for entry in page {
            let Some((_, group)) = Cursor::names_at(&entry.key) else { continue };
            // A cursor that cannot be read is reported when its group is used.
            let Ok(cursor) = Cursor::decode(&entry.value) else { continue };
            let (events, _) = open_events(&cursor, removed);
            if events > 0 {
                tracing::warn!(%topic, %group, events, "retention removed events the group had not finished");
                metrics.lost_to_retention(topic, &group, events);
            }
        }
    }
}
