//! Redrives dead letters: each event goes again to the group that gave up on it, and to no other.
//!
//! One commit records that the letter is redriven and that the group has the event to deliver, so a letter is redriven
//! once, however often it is requested and whatever crashes. The gateway that delivers the group reads the record, delivers
//! the event like any redelivery, and removes the record in the commit that finishes the event.

use std::collections::{BTreeSet, HashMap};

use prombus_engine::{Durability, Expect, StateOp};
use prombus_proto::{ErrorCode, EventId, Group, Seq, Timestamp, Topic};

use super::pages::{Found, LetterPages};
use super::{Letter, LetterSelection};
use crate::bus::Bus;
use crate::error::Refusal;
use crate::groups::Command;
use crate::publish::Submission;
use crate::stored::cursor::Cursor;
use crate::stored::group_change::GroupChange;
use crate::stored::letter::LetterRecord;
use crate::stored::redrive::Redrive;

/// What became of a request to redrive dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redriven {
    /// The letters that this request redrove.
    pub redriven: u64,
    /// Letters that were redriven before, and those that cannot be: their group or their event is gone, or the same
    /// event is being redriven from another letter.
    pub skipped: u64,
    /// The last letter that was looked at, if there are more behind it.
    pub next: Option<EventId>,
    /// Where the selection ended: letters that came later are not among them.
    pub end: Seq,
}

/// Other requests may redrive the same letters at the same time.
const MAX_TRIES: usize = 10;

impl Bus {
    /// Redrives dead letters of `topic`, oldest first.
    ///
    /// # Errors
    ///
    /// As for [`Bus::dead_letters`], `UnknownGroup` if the group of the selection does not exist, or if the store
    /// fails. What was redriven until then stays redriven; the call can be repeated.
    pub async fn redrive(
        &self,
        topic: &Topic,
        selection: LetterSelection,
    ) -> Result<Redriven, Refusal> {
        self.check_open()?;
        let mut pages = LetterPages::begin(self, topic, &selection).await?;
        if let Some(group) = &selection.group
            && self.group_created(topic, group).await?.is_none()
        {
            return Err(Refusal::unknown_group(topic, group));
        }
        let (mut redriven, mut skipped) = (0, 0);
        while redriven < selection.limit
            && let Some(page) = pages.next().await?
        {
            let mut fresh: Vec<_> = page
                .into_iter()
                .filter(|found| {
                    skipped += u64::from(found.letter.redriven);
                    !found.letter.redriven
                })
                .collect();
            if fresh.len() > selection.limit - redriven {
                fresh.truncate(selection.limit - redriven);
                pages.stop_behind(&fresh[fresh.len() - 1].letter);
            }
            let count = fresh.len();
            let done = self.redrive_page(topic, fresh).await?;
            redriven += done;
            skipped += (count - done) as u64;
        }
        self.forget_removed_letters(topic, &pages.dead_letters).await?;
        Ok(Redriven { redriven: redriven as u64, skipped, next: pages.rest(), end: pages.end })
    }

    /// Returns how many of the letters were redriven.
    async fn redrive_page(&self, topic: &Topic, mut letters: Vec<Found>) -> Result<usize, Refusal> {
        // No group is deleted by this gateway meanwhile.
        let _lock = self.topics_in_use().lock_settings().await;
        for _ in 0..MAX_TRIES {
            letters.retain(|found| !found.record.redriven && !found.record.dropped);
            if letters.is_empty() {
                return Ok(0);
            }
            let Plan { changes, groups, redriven } = self.plan(topic, &letters).await?;
            if changes.is_empty() {
                return Ok(0);
            }
            match self.store(Submission::of_state(changes, Durability::Fsync)).await {
                Ok(()) => {
                    groups.iter().for_each(|group| self.tell_redriven(topic, group));
                    return Ok(redriven);
                }
                Err(refusal) if refusal.code == ErrorCode::Conflict => {
                    self.read_records_again(topic, &mut letters).await?;
                }
                Err(refusal) => return Err(refusal),
            }
        }
        let message = "the same dead letters are being redriven by other requests; try again";
        Err(Refusal::new(ErrorCode::StorageUnavailable, message))
    }

    /// Returns the changes that redrive those letters that can be.
    async fn plan(&self, topic: &Topic, letters: &[Found]) -> Result<Plan, Refusal> {
        let positions = self.positions(topic, letters).await?;
        let (mut plan, mut known_groups) = (Plan::default(), HashMap::new());
        let mut events = Vec::new();
        for (found, seq) in letters.iter().zip(positions) {
            let group = &found.letter.group;
            if !known_groups.contains_key(group) {
                known_groups.insert(group.clone(), self.group_created(topic, group).await?);
            }
            // A letter from before the group was created is one of a group or a topic that was deleted.
            if let Some(seq) = seq
                && known_groups[group].is_some_and(|created| created <= found.letter.ts)
            {
                events.push((found, seq, Redrive::key(topic, group, seq)));
            }
        }
        let keys: Vec<_> = events.iter().map(|(_, _, key)| key.clone()).collect();
        let pending = self.engine().get_many(&keys).await?;
        let mut planned = BTreeSet::new();
        for ((found, _, key), pending) in events.into_iter().zip(pending) {
            // The group may have given up on an event twice: the next letter waits until the first is finished.
            if pending.is_none() && planned.insert(key.clone()) {
                plan.changes.push(mark_redriven(topic, found));
                plan.redriven += 1;
                plan.groups.insert(found.letter.group.clone());
                plan.changes.push(StateOp::Put {
                    key,
                    value: Redrive::of(found.letter.seq).encode().into(),
                    expires_at: None,
                    expect: Expect::Absent,
                });
            }
        }
        if let Some(gateway) = self.gateway() {
            let now = self.clock().now();
            let change = GroupChange { by: gateway.clone() };
            let told = plan.groups.iter().filter_map(|group| change.clone().put(topic, group, now));
            plan.changes.extend(told);
        }
        Ok(plan)
    }

    /// Returns where each event is or was in its topic, or `None` if nobody has it any more.
    async fn positions(
        &self,
        topic: &Topic,
        letters: &[Found],
    ) -> Result<Vec<Option<Seq>>, Refusal> {
        let ids: Vec<_> =
            letters.iter().filter_map(|found| found.letter.original_id.clone()).collect();
        let mut stored = self.engine().seek_ids(topic, &ids).await?.into_iter();
        let bounds = self.engine().bounds(topic).await?;
        let position = |found: &Found| {
            let stored = found.letter.original_id.as_ref().and_then(|_| stored.next().flatten());
            match (found.original_seq, &found.letter.original) {
                // Otherwise the topic has another event there, or the same id again elsewhere.
                (Some(seq), _) => {
                    Some(seq).filter(|seq| stored == Some(*seq) || *seq < bounds.first)
                }
                // Its copy is not the event that it names.
                (None, Some(_)) => None,
                (None, None) => stored,
            }
        };
        Ok(letters.iter().map(position).collect())
    }

    /// Returns when the group was created, if it exists.
    async fn group_created(
        &self,
        topic: &Topic,
        group: &Group,
    ) -> Result<Option<Timestamp>, Refusal> {
        let key = Cursor::key(topic, group)
            .map_err(|error| Refusal::new(ErrorCode::BadGroup, error.to_string()))?;
        let Some(entry) = self.engine().get(&key).await? else { return Ok(None) };
        let cursor = Cursor::decode(&entry.value).map_err(|error| {
            let message = format!("the cursor of {group} on {topic} {error}");
            Refusal::new(ErrorCode::Internal, message)
        })?;
        Ok(Some(cursor.created))
    }

    async fn read_records_again(
        &self,
        topic: &Topic,
        letters: &mut [Found],
    ) -> Result<(), Refusal> {
        let key = |found: &Found| LetterRecord::key(topic, found.letter.seq);
        let keys: Vec<_> = letters.iter().map(key).collect();
        let entries = self.engine().get_many(&keys).await?;
        for (found, entry) in letters.iter_mut().zip(entries) {
            let Some(entry) = entry else { continue };
            found.version = Some(entry.version);
            found.record = LetterRecord::decode(&entry.value)
                .map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
        }
        Ok(())
    }

    fn tell_redriven(&self, topic: &Topic, group: &Group) {
        if let Some(commands) = self.groups().get(topic, group) {
            // A group whose task has ended reads them when it is needed again.
            let _ = commands.send(Command::Redriven);
        }
    }
}

/// What redrives some letters.
#[derive(Default)]
struct Plan {
    changes: Vec<StateOp>,
    groups: BTreeSet<Group>,
    redriven: usize,
}

fn mark_redriven(topic: &Topic, Found { letter, record, version, .. }: &Found) -> StateOp {
    let Letter { seq, .. } = letter;
    StateOp::Put {
        key: LetterRecord::key(topic, *seq),
        value: LetterRecord { redriven: true, ..*record }.encode().into(),
        expires_at: None,
        expect: version.map_or(Expect::Absent, Expect::Version),
    }
}
