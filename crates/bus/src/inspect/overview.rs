//! Topics and groups, as operators see them.

use prombus_engine::{Bounds, Health, ReadError, StateEntry};
use prombus_proto::{ErrorCode, Group, Seq, Topic};

use crate::bus::Bus;
use crate::error::Refusal;
use crate::inspect::lag::{self, Lag};
use crate::stored::StatePages;
use crate::stored::cursor::Cursor;
use crate::topics::{TopicRules, TopicSettings};

/// A snapshot of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicOverview {
    pub bounds: Bounds,
    /// The effective settings.
    pub rules: TopicRules,
    /// The settings that were changed at run time.
    pub own: TopicSettings,
}

/// A snapshot of a group's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOverview {
    pub group: Group,
    pub cursor: Cursor,
    pub lag: Lag,
    /// Subscriptions at this gateway.
    pub members: usize,
    /// Events on lease at this gateway.
    pub in_flight: usize,
}

impl Bus {
    /// Returns the topics that were ever published to, or have settings or groups, sorted by name.
    pub async fn topics(&self) -> Result<Vec<Topic>, Refusal> {
        let mut topics = self.engine().topics().await?;
        topics.append(&mut self.topics_in_use().configured());
        topics.append(&mut self.topics_with_groups().await?);
        topics.sort_unstable();
        topics.dedup();
        Ok(topics)
    }

    pub async fn topic(&self, topic: &Topic) -> Result<TopicOverview, Refusal> {
        let bounds = self.known_bounds(topic).await?;
        let rules = self.topics_in_use().rules(topic);
        let own = self.topics_in_use().own(topic).unwrap_or_default();
        Ok(TopicOverview { bounds, rules, own })
    }

    /// Returns the bounds of `topic`.
    ///
    /// # Errors
    ///
    /// `UnknownTopic` if it was never published to and has no settings.
    pub async fn bounds(&self, topic: &Topic) -> Result<Bounds, Refusal> {
        let bounds = self.engine().bounds(topic).await?;
        if bounds.next == Seq::FIRST && !self.topics_in_use().is_configured(topic) {
            let message = format!("nothing was ever published to {topic}");
            return Err(Refusal::new(ErrorCode::UnknownTopic, message));
        }
        Ok(bounds)
    }

    /// Returns the bounds of `topic`, like [`bounds`](Bus::bounds). A topic with groups is known as well: its
    /// consumers may come before its first event.
    pub async fn known_bounds(&self, topic: &Topic) -> Result<Bounds, Refusal> {
        match self.bounds(topic).await {
            Err(refusal) if refusal.code == ErrorCode::UnknownTopic => {
                let prefix = Cursor::prefix_of(topic);
                let groups = self.engine().scan(&prefix, None, 1).await?;
                if groups.is_empty() { Err(refusal) } else { Ok(Bounds::EMPTY) }
            }
            bounds => bounds,
        }
    }

    async fn topics_with_groups(&self) -> Result<Vec<Topic>, Refusal> {
        let mut topics: Vec<Topic> = Vec::new();
        let mut cursors = StatePages::new(self.engine().as_ref(), Cursor::prefix());
        loop {
            let page = match cursors.next().await {
                // The topics that have events are listed all the same.
                Err(ReadError::Damaged(_)) => return Ok(topics),
                page => page?,
            };
            if page.is_empty() {
                return Ok(topics);
            }
            // The groups of a topic follow each other.
            for (topic, _) in page.iter().filter_map(|entry| Cursor::names_at(&entry.key)) {
                if topics.last() != Some(&topic) {
                    topics.push(topic);
                }
            }
        }
    }

    /// Returns the groups of `topic`, sorted by name.
    pub async fn groups_of(&self, topic: &Topic) -> Result<Vec<GroupOverview>, Refusal> {
        let bounds = self.known_bounds(topic).await?;
        let prefix = Cursor::prefix_of(topic);
        let mut pages = StatePages::new(self.engine().as_ref(), &prefix);
        let mut groups = Vec::new();
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                groups.sort_unstable_by(|a: &GroupOverview, b| a.group.cmp(&b.group));
                return Ok(groups);
            }
            for entry in page {
                // Not the key of a cursor.
                let Some((_, group)) = Cursor::names_at(&entry.key) else { continue };
                groups.push(self.group_overview(topic, &bounds, group, &entry).await?);
            }
        }
    }

    pub async fn group(&self, topic: &Topic, group: &Group) -> Result<GroupOverview, Refusal> {
        let bounds = self.known_bounds(topic).await?;
        let key = Cursor::key(topic, group)
            .map_err(|error| Refusal::new(ErrorCode::BadGroup, error.to_string()))?;
        let Some(entry) = self.engine().get(&key).await? else {
            return Err(Refusal::unknown_group(topic, group));
        };
        self.group_overview(topic, &bounds, group.clone(), &entry).await
    }

    #[must_use]
    pub fn health(&self) -> Health {
        self.engine().health()
    }

    async fn group_overview(
        &self,
        topic: &Topic,
        bounds: &Bounds,
        group: Group,
        entry: &StateEntry,
    ) -> Result<GroupOverview, Refusal> {
        let cursor = Cursor::decode(&entry.value).map_err(|error| {
            let message = format!("the cursor of {group} on {topic} {error}");
            Refusal::new(ErrorCode::Internal, message)
        })?;
        let (events, first) = lag::open_events(&cursor, bounds);
        let ms = match first {
            Some(first) => {
                lag::age(self.engine().as_ref(), self.clock().now(), topic, first).await?
            }
            None => 0,
        };
        let in_use = self.describe_group(topic, &group).await;
        Ok(GroupOverview {
            group,
            cursor,
            lag: Lag { events, ms },
            members: in_use.map_or(0, |group| group.members),
            in_flight: in_use.map_or(0, |group| group.in_flight),
        })
    }
}
