//! Everything about one group: its members, and what keeps its oldest unfinished event.

use prombus_engine::ReadBudget;
use prombus_proto::{EventId, Group, Seq, Topic};
use tokio::sync::oneshot;

use super::{GroupOverview, lag};
use crate::bus::Bus;
use crate::error::Refusal;
use crate::groups::{
    Command, Inspection, MemberDetails, OldestOpen, WhyUnfinished, allowed_attempts,
};
use crate::stored::cursor::{Attempts, Cursor, Progress};
use crate::stored::group_lease::GroupLease;
use crate::stored::redrive::Redrive;

/// Everything about one group.
#[derive(Clone, Debug)]
pub struct GroupDetails {
    pub overview: GroupOverview,
    pub max_attempts: u32,
    /// Redriven dead letters that the group has not finished.
    pub redriving: u64,
    /// Whether another gateway delivers the group. Its members and leases are known there only.
    pub is_remote: bool,
    /// The subscriptions at this gateway.
    pub members: Vec<MemberDetails>,
    /// The oldest event that is not finished.
    pub oldest: Option<OldestUnfinished>,
}

/// The oldest event that a group has not finished.
#[derive(Clone, Debug)]
pub struct OldestUnfinished {
    pub seq: Seq,
    /// `None` if the event cannot be read.
    pub id: Option<EventId>,
    /// How long ago the event was stored, in milliseconds.
    pub age_ms: u64,
    pub attempts: Attempts,
    /// The last reason of a NACK, if this process knows it.
    pub last_reason: Option<String>,
    pub why: WhyUnfinished,
}

impl Bus {
    /// Returns everything about `group` on `topic`.
    ///
    /// # Errors
    ///
    /// `UnknownTopic`, `UnknownGroup`, or if the store cannot be read.
    pub async fn group_details(
        &self,
        topic: &Topic,
        group: &Group,
    ) -> Result<GroupDetails, Refusal> {
        let overview = self.group(topic, group).await?;
        let inspection = self.inspect_group(topic, group).await;
        let is_remote = !inspection.as_ref().is_some_and(|inspection| inspection.is_owned)
            && self.is_owned_elsewhere(topic, group).await?;
        let properties = self.group_properties(topic, group).await?;
        let default = allowed_attempts(self.default_max_attempts());
        let redriving = self.count_state(Redrive::prefix_of(topic, group).as_bytes()).await?;
        let oldest = self
            .oldest_unfinished(topic, group, &overview.cursor, inspection.as_ref(), is_remote)
            .await?;
        Ok(GroupDetails {
            overview,
            max_attempts: properties.max_attempts.unwrap_or(default),
            redriving,
            is_remote,
            members: inspection.map_or_else(Vec::new, |inspection| inspection.members),
            oldest,
        })
    }

    async fn inspect_group(&self, topic: &Topic, group: &Group) -> Option<Inspection> {
        let commands = self.groups().get(topic, group)?;
        let (reply, inspection) = oneshot::channel();
        commands.send(Command::Inspect { reply }).ok()?;
        inspection.await.ok()
    }

    async fn is_owned_elsewhere(&self, topic: &Topic, group: &Group) -> Result<bool, Refusal> {
        let (Some(gateway), Ok(key)) = (self.gateway(), GroupLease::key(topic, group)) else {
            return Ok(false);
        };
        let lease = self.engine().get(&key).await?;
        let holder = lease.and_then(|entry| GroupLease::decode(&entry.value).ok()?.holder);
        Ok(holder.is_some_and(|holder| holder != *gateway))
    }

    async fn oldest_unfinished(
        &self,
        topic: &Topic,
        group: &Group,
        cursor: &Cursor,
        inspection: Option<&Inspection>,
        is_remote: bool,
    ) -> Result<Option<OldestUnfinished>, Refusal> {
        let bounds = self.engine().bounds(topic).await?;
        let known = inspection.filter(|inspection| inspection.is_owned);
        let oldest = match known.and_then(|inspection| inspection.oldest.clone()) {
            Some(oldest) => oldest,
            None => {
                let Some(oldest) = self.oldest_stored(topic, group, cursor, &bounds).await? else {
                    return Ok(None);
                };
                let why = match known {
                    _ if is_remote => WhyUnfinished::AtAnotherGateway,
                    Some(inspection) => inspection.undelivered,
                    None => oldest.why,
                };
                OldestOpen { why, ..oldest }
            }
        };
        let OldestOpen { seq, id: known_id, attempts, last_reason, why } = oldest;
        let (engine, now) = (self.engine().as_ref(), self.clock().now());
        let page = engine.read(topic, seq, ReadBudget::of_events(1)).await.ok();
        let event = page.and_then(|page| page.events.into_iter().find(|event| event.seq == seq));
        let age_ms = lag::age(engine, now, topic, seq).await?;
        let id = event.map(|event| event.id).or(known_id);
        Ok(Some(OldestUnfinished { seq, id, age_ms, attempts, last_reason, why }))
    }

    /// Returns the oldest unfinished event as far as the store tells.
    async fn oldest_stored(
        &self,
        topic: &Topic,
        group: &Group,
        cursor: &Cursor,
        bounds: &prombus_engine::Bounds,
    ) -> Result<Option<OldestOpen>, Refusal> {
        let prefix = Redrive::prefix_of(topic, group);
        let redrives = self.engine().scan(prefix.as_bytes(), None, 1).await?;
        let redriven = redrives.first().and_then(|entry| Redrive::read(entry).ok()?);
        let redriven = redriven.map(|(seq, redrive)| (seq, redrive.attempts, redrive.retry));
        let in_log = lag::open_events(cursor, bounds).1.map(|seq| {
            let index = usize::try_from(seq.0 - cursor.floor.0 - 1).unwrap_or(usize::MAX);
            match cursor.above().nth(index) {
                Some(Progress::Tried(attempts)) => (seq, attempts, None),
                Some(Progress::BackingOff(attempts, retry)) => (seq, attempts, Some(retry)),
                Some(Progress::Done) | None => (seq, Attempts::default(), None),
            }
        });
        let oldest = redriven.into_iter().chain(in_log).min_by_key(|(seq, ..)| *seq);
        Ok(oldest.map(|(seq, attempts, retry)| {
            let left = retry.map(|retry| retry.wait_from(self.clock().now()));
            let why = match left.filter(|left| !left.is_zero()) {
                Some(left) => WhyUnfinished::BackingOff { left },
                None => WhyUnfinished::NoMembers,
            };
            OldestOpen { seq, id: None, attempts, last_reason: None, why }
        }))
    }
}
