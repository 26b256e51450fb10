//! The retention rules of topics: the task that applies them periodically, and what groups lose by it.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{Bounds, CommitError, Engine, ReadError, Retention};
use prombus_proto::{Clock, Seq, Topic};

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
            let stored = match self.stored_topics().await {
                Ok(stored) => stored,
                Err(error) => {
                    tracing::warn!(
                        "cannot list the topics: {error}; no retention until the next pass"
                    );
                    continue;
                }
            };
            for topic in self.topics.retained(stored) {
                self.apply(&topic, &mut warned).await;
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

    /// Returns the topics that may have a rule without settings of their own.
    async fn stored_topics(&self) -> Result<Vec<Topic>, ReadError> {
        if self.topics.retain_by_pattern() { self.engine.topics().await } else { Ok(Vec::new()) }
    }

    /// Applies the rule of `topic`. Warns once about each topic whose newest rule is ahead of the clock.
    async fn apply(&self, topic: &Topic, warned: &mut HashSet<Topic>) {
        let mut result = self.retain(topic, 0).await;
        if let Err(CommitError::StaleRule { applied, .. }) = result {
            if applied > self.clock.now().0 && warned.insert(topic.clone()) {
                tracing::warn!(%topic, applied, "a retention rule was applied when the clock was ahead; \
                    later rules continue from its revision");
            }
            // The rule may come from another gateway. The settings are loaded now, so they are at least as new
            // as that rule's, and its revision can be used again. It is not exceeded: a change of the settings
            // needs a higher one.
            match reload_settings(self.engine.as_ref(), &self.topics, topic).await {
                Ok(()) => result = self.retain(topic, applied).await,
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

    /// Applies the rule of `topic`, with a revision of at least `revision`.
    async fn retain(&self, topic: &Topic, revision: u64) -> Result<Bounds, CommitError> {
        // A rule must not outlive its topic: the engine would remember it for ever.
        let _lock = self.topics.lock_settings().await;
        let bounds = self.engine.bounds(topic).await.map_err(CommitError::from)?;
        let rule = self.topics.retention(topic);
        if bounds.next == Seq::FIRST || rule.max_age_ms.is_none() && rule.max_bytes.is_none() {
            return Ok(bounds);
        }
        let rule = Retention { revision: rule.revision.max(revision), ..rule };
        retain(self.engine.as_ref(), &self.metrics, topic, &rule).await
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
        report_losses(engine, metrics, topic, &removed, Removal::Retention).await;
    }
    Ok(bounds)
}

/// What removes events that groups may not have finished.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Removal {
    Retention,
    Purge,
}

/// Counts and logs the events within the bounds `removed` that a group had not finished.
pub(crate) async fn report_losses(
    engine: &dyn Engine,
    metrics: &Metrics,
    topic: &Topic,
    removed: &Bounds,
    removal: Removal,
) {
    if let Err(error) = count_losses(engine, metrics, topic, removed, removal).await {
        tracing::warn!(%topic, "cannot count the events that groups lost to {removal}: {error}");
    }
}

impl fmt::Display for Removal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Removal::Retention => "retention",
            Removal::Purge => "a purge",
        })
    }
}

async fn count_losses(
    engine: &dyn Engine,
    metrics: &Metrics,
    topic: &Topic,
    removed: &Bounds,
    removal: Removal,
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
                tracing::warn!(%topic, %group, events, "{removal} removed events the group had not finished; it never gets \
                     them: keep the topic's events longer, or make the group faster");
                metrics.lost_to_retention(topic, &group, events);
            }
        }
    }
}
