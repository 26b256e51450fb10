//! Copies of redriven events, for those that their topic does not have any more.

use prombus_engine::{ReadBudget, ReadError};
use prombus_proto::Seq;

use super::effects::GroupStore;
use crate::dead_letters::ReadLetter;
use crate::topics::{FeedEvent, read};

impl GroupStore {
    /// Reads the copy of the event `seq` in its dead letter at `letter`. Returns `None` if there is none.
    pub(super) async fn copy_in(
        &self,
        letter: Seq,
        seq: Seq,
    ) -> Result<Option<FeedEvent>, ReadError> {
        let (engine, budget) = (self.ctx.engine.as_ref(), ReadBudget::of_events(1));
        let page = match read(engine, &self.dead_letters, letter, budget).await {
            Ok(page) => page,
            Err(ReadError::Damaged(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let letter = page.events.iter().find(|event| event.seq == letter);
        let copy = letter.and_then(|event| ReadLetter::parse(event, &self.name.topic)?.copy());
        Ok(copy.filter(|copy| copy.seq == seq))
    }
}
