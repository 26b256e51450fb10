//! What operators change of a group in the store: its position, whichever gateway delivers it, and its properties.

use prombus_engine::{CommitError, Durability, Expect, StateOp};
use prombus_proto::ErrorCode;

use super::effects::GroupStore;
use crate::error::Refusal;
use crate::groups::state::{Loaded, Moved, Seeking};
use crate::publish::Submission;
use crate::stored::StatePages;
use crate::stored::cursor::Cursor;
use crate::stored::group_change::GroupChange;
use crate::stored::group_lease::GroupLease;
use crate::stored::group_properties::GroupProperties;
use crate::stored::mark;

/// Another gateway may claim the group at the same time, or release it.
const MAX_TRIES: usize = 10;

impl GroupStore {
    /// Stores that the group goes on at another position. On a shared store it takes the group from the gateway that
    /// owns it: whoever has members claims it at the new position.
    pub(super) async fn seek(&self, seeking: &Seeking) -> Result<Moved, Refusal> {
        let mut marks_removed = 0;
        for _ in 0..MAX_TRIES {
            let Some((known, _)) = self.cursor().await? else { return Err(self.unknown_group()) };
            if seeking.next <= known.last_delivered() && !seeking.honour_marks {
                marks_removed += self.remove_marks().await?;
            }
            let mut cursor = Cursor::starting_behind(seeking.next.previous(), known.created);
            let Some(leases) = &self.ctx.group_leases else {
                let put = self.put_cursor(&cursor, Expect::Any);
                self.commit(Submission::of_state(vec![put], Durability::Fsync)).await?;
                return Ok(Moved { marks_removed, sole: Some(self.loaded(cursor).await?) });
            };
            let lease = self.lease().await?;
            let last_epoch = lease.as_ref().map_or(0, |(lease, _)| lease.epoch);
            let epoch = last_epoch.max(known.epoch.unwrap_or(0)) + 1;
            cursor.epoch = Some(epoch);
            let version = lease.map(|(_, version)| version);
            let mut ops = vec![
                self.put_lease(&GroupLease::of_nobody(epoch), version),
                self.put_cursor(&cursor, Expect::Any),
            ];
            let change = GroupChange { by: leases.heartbeat.gateway().clone() };
            ops.extend(change.put(&self.name.topic, &self.name.group, self.ctx.clock.now()));
            match self.commit(Submission::of_state(ops, Durability::Fsync)).await {
                Ok(_) => return Ok(Moved { marks_removed, sole: None }),
                // The lease has changed. If the group was deleted, it is found out in the next round.
                Err(CommitError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let message = "gateways claimed the group again and again; nothing was moved, try again";
        Err(Refusal::new(ErrorCode::StorageUnavailable, message))
    }

    async fn loaded(&self, cursor: Cursor) -> Result<Loaded, Refusal> {
        let (redrives, topic_end) = (self.redrives().await?, self.topic_end().await?);
        let (properties, at) = (self.properties().await?, self.moment());
        Ok(Loaded { cursor, redrives, topic_end, properties, at, created: false })
    }

    /// Returns how many there were.
    async fn remove_marks(&self) -> Result<u64, Refusal> {
        let prefix = mark::prefix_of_group(&self.name.topic, &self.name.group);
        let mut pages = StatePages::new(self.ctx.engine.as_ref(), &prefix);
        let mut removed = 0;
        loop {
            let page = pages.next().await?;
            if page.is_empty() {
                return Ok(removed);
            }
            removed += page.len() as u64;
            let expect = Expect::Any;
            let delete = page.into_iter().map(|entry| StateOp::Delete { key: entry.key, expect });
            self.commit(Submission::of_state(delete.collect(), Durability::Buffered)).await?;
        }
    }

    /// Stores properties of the group, unless it was deleted.
    pub(super) async fn change_properties(
        &self,
        properties: GroupProperties,
    ) -> Result<(), Refusal> {
        match self.cursor().await? {
            Some(_) => self.store_properties(properties).await,
            None => Err(self.unknown_group()),
        }
    }

    fn unknown_group(&self) -> Refusal {
        Refusal::unknown_group(&self.name.topic, &self.name.group)
    }
}
