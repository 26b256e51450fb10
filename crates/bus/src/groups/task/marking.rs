//! The marks that an acknowledgement stores.

use prombus_engine::Engine;
use prombus_proto::{ErrorCode, EventId, Timestamp};

use crate::error::Refusal;
use crate::groups::state::GroupName;
use crate::stored::mark::{self, Marks};

/// Returns the marks of `ids`, none of which may be marked already.
pub(super) async fn marks_of_unmarked(
    engine: &dyn Engine,
    GroupName { topic, group, .. }: &GroupName,
    until: Timestamp,
    ids: &[EventId],
) -> Result<Marks, Refusal> {
    let marked = mark::are_marked(engine, topic, group, ids).await?;
    if let Some((id, _)) = ids.iter().zip(marked).find(|(_, is_marked)| *is_marked) {
        let message = format!("{id} is marked as handled already: nothing was published");
        return Err(Refusal::new(ErrorCode::Conflict, message));
    }
    let mut marks = Marks::of(topic, group, until);
    ids.iter().for_each(|id| marks.add(id));
    Ok(marks)
}

/// Returns the marks of those `ids` that are leased (as `leased` says, by index) or exist in the topic.
pub(super) async fn marks_of_existing(
    engine: &dyn Engine,
    GroupName { topic, group, .. }: &GroupName,
    until: Timestamp,
    ids: &[EventId],
    leased: &[bool],
) -> Result<Marks, Refusal> {
    let mut marks = Marks::of(topic, group, until);
    for (index, id) in ids.iter().enumerate() {
        let is_leased = leased.get(index).copied().unwrap_or(false);
        if is_leased || engine.seek_id(topic, id).await?.is_some() {
            marks.add(id);
        }
    }
    Ok(marks)
}
