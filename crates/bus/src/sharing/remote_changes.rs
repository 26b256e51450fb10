//! Notices what other gateways have deleted, and ends the subscriptions that this gateway has to it; and which groups
//! they have changed, so that those of this gateway read again what is stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prombus_engine::{Engine, StateEntry, StateKey, Version};
use prombus_proto::{Group, Topic};
use tokio::time::MissedTickBehavior;

use super::heartbeat::{GatewayId, Heartbeat};
use crate::error::Refusal;
use crate::groups::{Command, Groups};
use crate::stored::StatePages;
use crate::stored::deletion::{Deleted, Deletion};
use crate::stored::group_change::GroupChange;
use crate::topics::{Topics, deleted_elsewhere};

/// The task that looks for the records of deletions and changes.
pub(crate) struct RemoteChanges {
    gateway: GatewayId,
    interval: Duration,
    topics: Arc<Topics>,
    groups: Arc<Groups>,
    /// The records that were seen, until they expire.
    seen: HashMap<StateKey, Version>,
}

/// What a record says.
enum Change {
    Deleted(Deleted),
    Group(Topic, Group),
}

impl RemoteChanges {
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
        // This process holds nothing from before it started, so older records do not concern it.
        let mut is_first = true;
        loop {
            ticks.tick().await;
            match self.look(&engine, is_first).await {
                Ok(()) => is_first = false,
                Err(refusal) => {
                    tracing::debug!("cannot read what other gateways changed: {refusal}; retrying");
                }
            }
        }
    }

    async fn look(&mut self, engine: &Arc<dyn Engine>, is_first: bool) -> Result<(), Refusal> {
        let mut found = HashMap::new();
        for prefix in [Deletion::prefix(), GroupChange::prefix()] {
            let mut pages = StatePages::new(engine.as_ref(), prefix);
            loop {
                let page = pages.next().await?;
                if page.is_empty() {
                    break;
                }
                for entry in page {
                    let Some((change, by)) = Change::read(&entry) else { continue };
                    let is_new = self.seen.get(&entry.key) != Some(&entry.version);
                    if is_new && !is_first && by.as_ref() != Some(&self.gateway) {
                        self.apply(engine, &change, entry.version).await?;
                    }
                    found.insert(entry.key, entry.version);
                }
            }
        }
        self.seen = found;
        Ok(())
    }

    async fn apply(
        &self,
        engine: &Arc<dyn Engine>,
        change: &Change,
        at: Version,
    ) -> Result<(), Refusal> {
        match change {
            Change::Deleted(deleted) => self.end(engine, deleted, at).await,
            Change::Group(topic, group) => {
                if let Some(commands) = self.groups.get(topic, group) {
                    // A group whose task has ended reads everything when it starts again.
                    let _ = commands.send(Command::ChangedElsewhere);
                }
                Ok(())
            }
        }
    }

    /// Ends what this gateway has of it from before.
    async fn end(
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

impl Change {
    /// Returns what the record in `entry` says, and which gateway did it.
    fn read(entry: &StateEntry) -> Option<(Self, Option<GatewayId>)> {
        let deleted = Deletion::read(entry).map(|(deleted, by)| (Self::Deleted(deleted), by));
        deleted.or_else(|| {
            let ((topic, group), by) = GroupChange::read(entry)?;
            Some((Self::Group(topic, group), by))
        })
    }
}
