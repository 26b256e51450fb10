//! The newest event of a key.
//!
//! Topics have no index of keys, so this reads backwards from the end: a key in recent use is found
//! quickly, and a missing one costs a scan of the whole topic.

use prombus_engine::{ReadBudget, StoredEvent};
use prombus_proto::{Key, Seq, Topic};

use crate::bus::Bus;
use crate::error::Refusal;
use crate::topics::ReadPage;

/// Events in the first step backwards. Each further step is twice as long.
const FIRST_STEP: u64 = 256;
const MAX_STEP: u64 = 16_384;

impl Bus {
    /// Returns the event of `topic` with `key` and the highest `seq`.
    ///
    /// # Errors
    ///
    /// If the topic does not exist or cannot be read, or if damaged events are newer than every known
    /// event of the key.
    pub async fn latest_by_key(
        &self,
        topic: &Topic,
        key: &Key,
    ) -> Result<Option<StoredEvent>, Refusal> {
        let bounds = self.bounds(topic).await?;
        let (mut end, mut step) = (bounds.next, FIRST_STEP);
        while end > bounds.first {
            let start = Seq(end.0.saturating_sub(step)).max(bounds.first);
            if let Some(found) = self.last_within(topic, key, start, end).await? {
                return Ok(Some(found));
            }
            end = start;
            step = (step * 2).min(MAX_STEP);
        }
        Ok(None)
    }

    async fn last_within(
        &self,
        topic: &Topic,
        key: &Key,
        start: Seq,
        end: Seq,
    ) -> Result<Option<StoredEvent>, Refusal> {
        let mut found = None;
        let mut damaged = None;
        let mut from = start;
        while from < end {
            let left = usize::try_from(end.0 - from.0).unwrap_or(usize::MAX);
            match self.read(topic, from..end, ReadBudget::of_events(left)).await? {
                ReadPage::Events(events) => {
                    // Retention may have removed the rest in the meantime.
                    let Some(last) = events.last() else { break };
                    from = last.seq.next();
                    let has_key = |event: &StoredEvent| event.key.as_ref() == Some(key);
                    found = events.into_iter().rev().find(has_key).or(found);
                }
                // A newer event of the key may be among them, so what was found before is outdated.
                ReadPage::Damaged(range) => {
                    from = range.last.next();
                    (found, damaged) = (None, Some(range));
                }
            }
        }
        match (found, damaged) {
            (None, Some(range)) => Err(range.refusal(topic)),
            (found, _) => Ok(found),
        }
    }
}
