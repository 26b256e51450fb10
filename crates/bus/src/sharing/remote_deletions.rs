//! Notices what other gateways have deleted, and ends the subscriptions that this gateway has to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{Engine, StateKey, Version};
use tokio::time::MissedTickBehavior;

use super::heartbeat::{GatewayId, Heartbeat};
use crate::error::Refusal;
use crate::groups::{Command, Groups};
use crate::stored::StatePages;
use crate::stored::deletion::{Deleted, Deletion};
use crate::topics::{Topics, deleted_elsewhere};

/// The task that looks for the records of deletions.
pub(crate) struct RemoteDeletions {
    gateway: GatewayId,
    interval: Duration,
    topics: Arc<Topics>,
    groups: Arc<Groups>,
    /// The records that were seen, until they expire.
    seen: HashMap<StateKey, Version>,
}

impl RemoteDeletions {
    pub(crate) fn new(heartbeat: &Heartbeat, topics: &Arc<Topics>, groups: &Arc<Groups>) -> Self {
        Self {
            gateway: heartbeat.gateway().clone(),
            interval: heartbeat.check_interval(),
            topics: Arc::clone(topics),
            groups: Arc::clone(groups),
            seen: HashMap::new(),
        }
    }

    pub(crate) async fn run(mut self, engine: Arc<dyn Engine>) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What was deleted before this process started is nothing that it knows of.
        let mut is_first = true;
        loop {
            ticks.tick().await;
            match self.look(&engine, is_first).await {
                Ok(()) => is_first = false,
                Err(refusal) => {
                    tracing::debug!("cannot read what other gateways deleted: {refusal}; retrying");
                }
            }
        }
    }

    async fn look(&mut self, engine: &Arc<dyn Engine>, is_first: bool) -> Result<(), Refusal> {
        let mut found = HashMap::new();
        let mut pages = StatePages::new(engine.as_ref(), Deletion::prefix());
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                break;
            }
            for entry in page {
                let Some((deleted, by)) = Deletion::read(&entry) else { continue };
                let is_new = self.seen.get(&entry.key) != Some(&entry.version);
                if is_new && !is_first && by.as_ref() != Some(&self.gateway) {
                    self.apply(engine, &deleted, entry.version).await?;
                }
                found.insert(entry.key, entry.version);
            }
        }
        self.seen = found;
        Ok(())
    }

    /// Ends what this gateway has of it from before.
    async fn apply(
        &self,
        engine: &Arc<dyn Engine>,
        deleted: &Deleted,
        at: Version,
    ) -> Result<(), Refusal> {
        let reason = deleted.reason();
        self.groups.tell_all(deleted, || Command::DeletedElsewhere { at, reason });
        match deleted {
            Deleted::Topic(topic) => deleted_elsewhere(engine, &self.topics, topic).await,
            Deleted::Group(topic, group) => {
                self.topics.group_deleted(topic, group);
                Ok(())
            }
        }
    }
}
