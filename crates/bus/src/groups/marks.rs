//! Marks of handled events: looked up by SEEN, stored by MARK.

use std::time::Duration;

use prombus_proto::{EventId, Group, Timestamp, Topic};

use crate::bus::{Bus, Connection};
use crate::error::Refusal;
use crate::limits::Charges;
use crate::publish::{PendingCommit, Submission};
use crate::stored::mark::{Marks, are_marked};
use crate::time::now;

impl Bus {
    /// Returns those of `ids` that `group` on `topic` has marked, in order.
    pub async fn seen(
        &self,
        topic: &Topic,
        group: &Group,
        mut ids: Vec<EventId>,
    ) -> Result<Vec<EventId>, Refusal> {
        let mut marked = are_marked(self.engine().as_ref(), topic, group, &ids).await?.into_iter();
        ids.retain(|_| marked.next().unwrap_or(false));
        Ok(ids)
    }

    /// Marks `ids` as handled by `group` on `topic` for `ttl` from now, which takes a token per id from the
    /// connection. Marking an id again restarts its time.
    pub async fn mark(
        &self,
        connection: &Connection,
        topic: &Topic,
        group: &Group,
        ids: &[EventId],
        ttl: Duration,
    ) -> Result<PendingCommit, Refusal> {
        self.check_open()?;
        let count = ids.len() as u64;
        let charges = self.charge_marks(connection, count)?;
        let mut marks = Marks::of(topic, group, self.marked_until(ttl));
        ids.iter().for_each(|id| marks.add(id));
        // Not the topic in use: a topic that nobody uses must not be remembered for this.
        let durability = self.topics_in_use().rules(topic).durability;
        let submission =
            Submission { charges, ..Submission::of_state(marks.into_state(), durability) };
        PendingCommit::submit(self.committer(), submission).await
    }

    /// Takes a token per id for `count` marks, for [`Bus::mark`] and for ACKs that mark.
    ///
    /// # Errors
    ///
    /// If the connection or its principal has too few tokens.
    pub fn charge_marks(&self, connection: &Connection, count: u64) -> Result<Charges, Refusal> {
        connection
            .limit
            .try_take(count, now())
            .inspect_err(|limited| self.metrics().rate_limited(limited.scope, count))?;
        Ok(Charges::of_connection(&connection.limit, count))
    }

    /// Returns when a mark expires that is stored now for `ttl`.
    #[must_use]
    pub fn marked_until(&self, ttl: Duration) -> Timestamp {
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.clock().now().plus_ms(ttl)
    }
}
