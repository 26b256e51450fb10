//! Deletes topics, with everything that is stored for them.
//!
//! One commit deletes the events, the settings and all groups of a topic, so a deletion that is cut off has
//! either happened or not, and repeating it does no harm. Only the marks, of which there may be millions, are
//! removed before it, page by page; a deletion that is cut off may have lost some of them.

use std::sync::Arc;

use prombus_engine::{Durability, Engine, Expect, StateKey, StateOp};
use prombus_proto::{ErrorCode, Seq, Topic};

use crate::bus::Bus;
use crate::dead_letters::dead_letters_of;
use crate::error::Refusal;
use crate::publish::Submission;
use crate::stored::deletion::{Deleted, Deletion};
use crate::stored::letter::LetterRecord;
use crate::stored::{StatePages, group_state_prefixes, mark, topic_settings};
use crate::time::now;

/// The state changes of one commit: less than a page of the longest keys is large.
const CHANGES_PER_COMMIT: usize = 10_000;

impl Bus {
    /// Deletes `topic`: its events, settings, groups and marks. Subscriptions to it end. Events that are
    /// published at the same time are deleted as well, or create the topic again.
    ///
    /// # Errors
    ///
    /// `UnknownTopic` if there is nothing to delete. After a failure of the store it is unknown whether the
    /// topic is deleted; the call can be repeated.
    pub async fn delete_topic(&self, topic: &Topic) -> Result<(), Refusal> {
        self.check_open()?;
        // The settings must not be changed meanwhile, and retention must not remember a rule of the topic.
        let _lock = self.topics_in_use().lock_settings().await;
        if !self.has_anything_of(topic).await? {
            let message = format!("nothing was ever published to {topic}, and it has no settings");
            return Err(Refusal::new(ErrorCode::UnknownTopic, message));
        }
        let deleted = Deleted::Topic(topic.clone());
        let _fence = self.groups().end(deleted.clone()).await;
        self.remove_state(&mark::prefix_of(topic)).await?;
        if let Some(of) = dead_letters_of(topic) {
            self.remove_state(&LetterRecord::prefix_of(&of)).await?;
        }
        let mut changes = self.removal_of_groups(topic).await?;
        changes.extend(self.record_of(&deleted));
        let rest = self.store_all_but_last(changes).await?;
        let deletion = Submission {
            deleted_topics: vec![topic.clone()],
            ..Submission::of_state(rest, Durability::Fsync)
        };
        self.store(deletion).await?;
        self.topics_in_use().forget(topic, now());
        Ok(())
    }

    /// Returns `true` if the topic is stored or configured, or anything of it is left.
    async fn has_anything_of(&self, topic: &Topic) -> Result<bool, Refusal> {
        if self.engine().bounds(topic).await?.next > Seq::FIRST
            || self.topics_in_use().is_configured(topic)
        {
            return Ok(true);
        }
        for prefix in group_state_prefixes(topic) {
            if !self.engine().scan(&prefix, None, 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes everything under `prefix`, page by page.
    pub(crate) async fn remove_state(&self, prefix: &[u8]) -> Result<(), Refusal> {
        let mut pages = StatePages::new(self.engine().as_ref(), prefix);
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(());
            }
            let changes = page.into_iter().map(|entry| removal(entry.key)).collect();
            self.store(Submission::of_state(changes, Durability::Buffered)).await?;
        }
    }

    /// Stores `changes`, except for the last ones, which fit into a commit and are returned.
    pub(crate) async fn store_all_but_last(
        &self,
        mut changes: Vec<StateOp>,
    ) -> Result<Vec<StateOp>, Refusal> {
        let last = changes.split_off(changes.len().saturating_sub(CHANGES_PER_COMMIT));
        for some in chunks(changes) {
            self.store(Submission::of_state(some, Durability::Buffered)).await?;
        }
        Ok(last)
    }

    /// Returns the changes that remove everything under `prefix`.
    pub(crate) async fn removal_of(&self, prefix: &[u8]) -> Result<Vec<StateOp>, Refusal> {
        let mut pages = StatePages::new(self.engine().as_ref(), prefix);
        let mut changes = Vec::new();
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(changes);
            }
            changes.extend(page.into_iter().map(|entry| removal(entry.key)));
        }
    }

    /// Counts the entries under `prefix`.
    pub(crate) async fn count_state(&self, prefix: &[u8]) -> Result<u64, Refusal> {
        let mut pages = StatePages::new(self.engine().as_ref(), prefix);
        let mut count = 0;
        loop {
            match pages.next().await?.len() {
                0 => return Ok(count),
                some => count += some as u64,
            }
        }
    }

    /// Returns the changes that remove the settings and all groups of `topic`.
    async fn removal_of_groups(&self, topic: &Topic) -> Result<Vec<StateOp>, Refusal> {
        let mut changes = Vec::new();
        if let Ok(settings) = topic_settings::key(topic) {
            changes.push(removal(settings));
        }
        for prefix in group_state_prefixes(topic) {
            changes.append(&mut self.removal_of(&prefix).await?);
        }
        Ok(changes)
    }

    /// Returns the change that tells other gateways of a deletion, if there may be others.
    pub(crate) fn record_of(&self, deleted: &Deleted) -> Option<StateOp> {
        let by = self.gateway()?.clone();
        Some(StateOp::Put {
            key: deleted.key().ok()?,
            value: Deletion { by }.encode().into(),
            expires_at: Some(Deletion::expires_at(self.clock().now())),
            expect: Expect::Any,
        })
    }
}

/// Removes what this process knows of a topic that another gateway has deleted.
pub(crate) async fn deleted_elsewhere(
    engine: &Arc<dyn Engine>,
    topics: &super::Topics,
    topic: &Topic,
) -> Result<(), Refusal> {
    let _lock = topics.lock_settings().await;
    let in_use = topics.find(topic);
    if let Some(in_use) = &in_use {
        in_use.deleted();
    }
    topics.forget(topic, now());
    if let Some(in_use) = in_use {
        // Events may have followed the deletion.
        in_use.feed.wake(engine.bounds(topic).await?.last());
    }
    Ok(())
}

fn removal(key: StateKey) -> StateOp {
    StateOp::Delete { key, expect: Expect::Any }
}

fn chunks(mut changes: Vec<StateOp>) -> impl Iterator<Item = Vec<StateOp>> {
    std::iter::from_fn(move || {
        let rest = changes.split_off(changes.len().min(CHANGES_PER_COMMIT));
        let chunk = std::mem::replace(&mut changes, rest);
        (!chunk.is_empty()).then_some(chunk)
    })
}
