//! What operators do to a group: move it, set its properties, delete it.

use prombus_engine::{Durability, Expect, InvalidStateKey, StateOp};
use prombus_proto::{ErrorCode, Group, Seq, Topic};
use tokio::sync::oneshot;

use super::command::{Command, Reply};
use super::{GroupReply, allowed_attempts};
use crate::bus::Bus;
use crate::error::Refusal;
use crate::publish::Submission;
use crate::stored::cursor::Cursor;
use crate::stored::deletion::Deleted;
use crate::stored::group_lease::GroupLease;
use crate::stored::group_properties::GroupProperties;
use crate::stored::mark;
use crate::stored::redrive::Redrive;
use crate::topics::StartAt;

/// How a group is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeekOptions {
    /// Keep the group's marks: consumers that look them up skip the events they have handled.
    pub honour_marks: bool,
    /// Change nothing.
    pub dry_run: bool,
}

/// Where a group goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// The next event the group gets, which may not exist yet.
    pub next: Seq,
    /// How many events of the topic there are from there on.
    pub events: u64,
    /// How many marks were removed, or would be.
    pub marks_removed: u64,
}

/// What to change of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupChange {
    /// `Some(None)` returns to the configured default.
    pub max_attempts: Option<Option<u32>>,
}

impl Bus {
    /// Moves `group` to another position of `topic`, whether it has members or not. Their leases are lost, and what they
    /// acknowledged before and is not stored yet is stale.
    ///
    /// A group that goes back gets events again that it has finished. Its marks are removed for that, unless the options
    /// say otherwise. Redriven dead letters that it has not finished stay.
    ///
    /// # Errors
    ///
    /// `UnknownTopic`, `UnknownGroup`, `UnknownId` if there is no event to start after, `BadFrame` for a position behind
    /// the end of the topic. After a failure of the store it is unknown whether the group was moved; the call can be
    /// repeated.
    pub async fn seek_group(
        &self,
        topic: &Topic,
        group: &Group,
        to: &StartAt,
        options: SeekOptions,
    ) -> Result<Sought, Refusal> {
        self.check_open()?;
        let known = self.group(topic, group).await?;
        let first = to.first(self.engine().as_ref(), topic).await?;
        let bounds = self.engine().bounds(topic).await?;
        if first > bounds.next {
            let message = format!(
                "{first} is behind the end of {topic}: the next event gets {}",
                bounds.next
            );
            return Err(Refusal::new(ErrorCode::BadFrame, message));
        }
        let next = first.max(bounds.first);
        let events = bounds.next.0 - next.0;
        let SeekOptions { honour_marks, dry_run } = options;
        if dry_run {
            let removes_marks = next <= known.cursor.last_delivered() && !honour_marks;
            let marks_removed = match removes_marks {
                true => self.count_state(&mark::prefix_of_group(topic, group)).await?,
                false => 0,
            };
            return Ok(Sought { next, events, marks_removed });
        }
        let marks_removed = self
            .ask_group(topic, group, |reply| Command::Seek { next, honour_marks, reply })
            .await?;
        if next > known.cursor.floor.next() {
            let skipped = next.0 - known.cursor.floor.next().0;
            tracing::info!(%topic, %group, "the group skips up to {skipped} events");
        }
        Ok(Sought { next, events, marks_removed })
    }

    /// Changes properties of `group`. The newest change wins, by an operator or by a member that subscribes.
    ///
    /// # Errors
    ///
    /// `UnknownTopic`, `UnknownGroup`, or if the properties cannot be stored.
    pub async fn set_group(
        &self,
        topic: &Topic,
        group: &Group,
        change: GroupChange,
    ) -> Result<(), Refusal> {
        self.check_open()?;
        self.group(topic, group).await?;
        let mut properties = self.group_properties(topic, group).await?;
        if let Some(max_attempts) = change.max_attempts {
            properties.max_attempts = max_attempts.map(allowed_attempts);
        }
        self.ask_group(topic, group, |reply| Command::Configure { properties, reply }).await
    }

    pub(crate) async fn group_properties(
        &self,
        topic: &Topic,
        group: &Group,
    ) -> Result<GroupProperties, Refusal> {
        let key = GroupProperties::key(topic, group).map_err(bad_group)?;
        match self.engine().get(&key).await? {
            Some(entry) => GroupProperties::decode(&entry.value).map_err(|error| {
                let message = format!("the properties record of {group} on {topic} {error}");
                Refusal::new(ErrorCode::Internal, message)
            }),
            None => Ok(GroupProperties::default()),
        }
    }

    /// Deletes `group`, with its progress, properties and marks. Subscriptions to it end. Its dead letters stay.
    ///
    /// # Errors
    ///
    /// `UnknownTopic` or `UnknownGroup` if there is nothing to delete. After a failure of the store it is unknown
    /// whether the group is deleted; the call can be repeated.
    pub async fn delete_group(&self, topic: &Topic, group: &Group) -> Result<(), Refusal> {
        self.check_open()?;
        self.group(topic, group).await?;
        let deleted = Deleted::Group(topic.clone(), group.clone());
        let _fence = self.groups().end(deleted.clone()).await;
        self.remove_state(&mark::prefix_of_group(topic, group)).await?;
        // None of its dead letters is redriven meanwhile.
        let _lock = self.topics_in_use().lock_settings().await;
        let mut changes = self.removal_of(Redrive::prefix_of(topic, group).as_bytes()).await?;
        let keys = [
            Cursor::key(topic, group).map_err(bad_group)?,
            GroupLease::key(topic, group).map_err(bad_group)?,
            GroupProperties::key(topic, group).map_err(bad_group)?,
        ];
        let expect = Expect::Any;
        changes.extend(keys.into_iter().map(|key| StateOp::Delete { key, expect }));
        changes.extend(self.record_of(&deleted));
        let last = self.store_all_but_last(changes).await?;
        self.store(Submission::of_state(last, Durability::Fsync)).await?;
        self.topics_in_use().group_deleted(topic, group);
        Ok(())
    }

    /// Sends a command to the task of a group, which is started if there is none, and waits for the answer.
    async fn ask_group<T>(
        &self,
        topic: &Topic,
        group: &Group,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Refusal> {
        let (reply, answer): (_, GroupReply<T>) = oneshot::channel();
        let start = || self.start_group(topic, group);
        self.groups().send(topic, group, command(reply), start)?;
        answer.await.unwrap_or_else(|_| Err(self.dropped_reply()))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to map_err")]
fn bad_group(error: InvalidStateKey) -> Refusal {
    Refusal::new(ErrorCode::BadGroup, error.to_string())
}
