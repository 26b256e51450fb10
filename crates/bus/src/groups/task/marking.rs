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
    let (mut marks, mut others) = (Marks::of(topic, group, until), Vec::new());
    for (index, id) in ids.iter().enumerate() {
        if leased.get(index).copied().unwrap_or(false) {
            marks.add(id);
        } else {
            others.push(id.clone());
        }
    }
    if others.is_empty() {
        return Ok(marks);
    }
    let found = engine.seek_ids(topic, &others).await?;
    let existing = others.iter().zip(found).filter(|(_, seq)| seq.is_some());
    existing.for_each(|(id, _)| marks.add(id));
    Ok(marks)
}
