//! What can be set for a topic while the bus runs: stored, in effect at once, and again after a
//! restart.

use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{CommitError, Durability, Engine, Expect, StateOp, Unavailable};
use prombus_proto::{ErrorCode, Topic};
use tokio::time::MissedTickBehavior;

use crate::bus::{Bus, now};
use crate::error::Refusal;
use crate::publish::Submission;
use crate::stored::StatePages;
use crate::stored::topic_settings;
use crate::topics::TopicSettings;
use crate::topics::Topics;

impl Bus {
    /// Sets what is different for `topic`, in place of all that was set before. What `own` leaves
    /// out is as configured.
    pub async fn configure_topic(&self, topic: &Topic, own: TopicSettings) -> Result<(), Refusal> {
        self.check_open()?;
        // Two at once are stored and applied in the same order.
        let _turn = self.topics_in_use().configuring().await;
        let key = topic_settings::key(topic)
            .map_err(|error| Refusal::new(ErrorCode::BadTopic, error.to_string()))?;
        let put = StateOp::Put {
            key,
            value: topic_settings::encode(&own).into(),
            expires_at: None,
            expect: Expect::Any,
        };
        let submission = Submission::of_state(vec![put], Durability::Fsync);
        let stored = self.committer().submit(submission).await?;
        stored.await.unwrap_or_else(|_| Err(Unavailable::Closed.into()))?;
        let revision = self.clock().now().0;
        let rule = self.topics_in_use().set_own(topic, own, revision, now());
        // At once and not at the next round: that may be under way with the rule before.
        match self.engine().retain(topic, &rule).await {
            Ok(_) | Err(CommitError::StaleRule { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes up what was set in an earlier life. Before anybody publishes.
    pub async fn recall_settings(&self) -> Result<(), Refusal> {
        recall_settings(self.engine().as_ref(), self.topics_in_use()).await
    }
}

/// How often is looked for what was set by another gateway.
const RECALLED_EVERY: Duration = Duration::from_secs(5);

/// Takes up what other gateways set, for ever.
pub(crate) async fn recall_again_and_again(engine: Arc<dyn Engine>, topics: Arc<Topics>) {
    let mut ticks = tokio::time::interval(RECALLED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(refusal) = recall_settings(engine.as_ref(), &topics).await {
            tracing::debug!("cannot see what other gateways set: {refusal}");
        }
    }
}

/// Takes up all that was ever set for a topic.
pub(crate) async fn recall_settings(engine: &dyn Engine, topics: &Topics) -> Result<(), Refusal> {
    // What is read before somebody here sets something must not be taken up after it.
    let _turn = topics.configuring().await;
    let mut pages = StatePages::new(engine, topic_settings::prefix());
    loop {
        let page = pages.next().await?;
        if page.is_empty() {
            return Ok(());
        }
        for entry in page {
            let read = topic_settings::read(&entry)
                .map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
            if let Some((topic, own)) = read {
                topics.recall_own(&topic, own, now());
            }
        }
    }
}
