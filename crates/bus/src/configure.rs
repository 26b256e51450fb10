//! What can be set for a topic while the bus runs: stored, in effect at once, and again after a
//! restart.

use prombus_engine::{CommitError, Durability, Expect, StateOp, Unavailable};
use prombus_proto::{ErrorCode, Topic};

use crate::bus::{Bus, now};
use crate::committer::Submission;
use crate::error::Refusal;
use crate::own_settings;
use crate::settings::TopicSettings;
use crate::state_pages::StatePages;

impl Bus {
    /// Sets what is different for `topic`, in place of all that was set before. What `own` leaves
    /// out is as configured.
    pub async fn configure_topic(&self, topic: &Topic, own: TopicSettings) -> Result<(), Refusal> {
        self.check_open()?;
        // Two at once are stored and applied in the same order.
        let _turn = self.configuring().lock().await;
        let key = own_settings::key(topic)
            .map_err(|error| Refusal::new(ErrorCode::BadTopic, error.to_string()))?;
        let put = StateOp::Put {
            key,
            value: own_settings::encode(&own).into(),
            expires_at: None,
            expect: Expect::Any,
        };
        let submission = Submission::of_state(vec![put], Durability::Fsync);
        let stored = self.committer().submit(submission).await?;
        stored.await.unwrap_or_else(|_| Err(Unavailable::Closed.into()))?;
        let rule = self.topics_in_use().set_own(topic, own, now());
        // At once and not at the next round: that may be under way with the rule before.
        match self.engine().retain(topic, &rule).await {
            Ok(_) | Err(CommitError::StaleRule { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes up what was set in an earlier life. Before anybody publishes.
    pub async fn recall_settings(&self) -> Result<(), Refusal> {
        let mut pages = StatePages::new(self.engine().as_ref(), own_settings::prefix());
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(());
            }
            for entry in page {
                let read = own_settings::read(&entry)
                    .map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
                if let Some((topic, own)) = read {
                    self.topics_in_use().set_own(&topic, own, now());
                }
            }
        }
    }
}
