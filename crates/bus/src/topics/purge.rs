//! Removes the first events of a topic when an operator asks for it.

use prombus_engine::Bounds;
use prombus_proto::{Seq, Timestamp, Topic};

use crate::bus::Bus;
use crate::error::Refusal;
use crate::topics::retention::{Removal, report_losses};

/// Which events to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purge {
    /// Those before this position.
    BeforeSeq(Seq),
    /// Those before the first event with this time or a later one.
    BeforeTime(Timestamp),
    All,
}

/// What a purge has removed and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purged {
    pub removed: u64,
    /// The position of the first event that is left, or of the next one to come.
    pub first: Seq,
}

impl Bus {
    /// Removes the first events of `topic`, whether or not groups have finished them. The numbering goes on.
    ///
    /// Events that groups have already read, or leased, may still be delivered.
    ///
    /// # Errors
    ///
    /// `UnknownTopic` if there is no such topic, or whatever keeps the store from doing it.
    pub async fn purge_topic(&self, topic: &Topic, purge: Purge) -> Result<Purged, Refusal> {
        self.check_open()?;
        let before = self.bounds(topic).await?;
        let below = match purge {
            Purge::BeforeSeq(seq) => seq,
            Purge::BeforeTime(ts) => self.engine().seek_time(topic, ts).await?,
            Purge::All => before.next,
        };
        let left = self.engine().trim(topic, below).await?;
        if let Some(in_use) = self.topics_in_use().find(topic) {
            in_use.feed.trim(left.first);
        }
        let removed = Bounds { next: left.first.max(before.first), ..before };
        if removed.count() > 0 {
            let (engine, metrics) = (self.engine().as_ref(), self.metrics());
            report_losses(engine, metrics, topic, &removed, Removal::Purge).await;
        }
        Ok(Purged { removed: removed.count(), first: left.first })
    }
}
