//! What a group marks together with an acknowledgement.

use prombus_engine::Engine;
use prombus_proto::{ErrorCode, EventId, Group, Timestamp, Topic};

use crate::error::Refusal;
use crate::stored::mark::{self, Marks};

/// The marks of `ids`, of which all are lent and none may be marked already.
pub(super) async fn first_marks(
    engine: &dyn Engine,
    topic: &Topic,
    group: &Group,
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

/// The marks of `ids`, except for those that neither are lent nor can come again: marks of
/// whatever a client makes up would fill the store.
pub(super) async fn marks_of_handled(
    engine: &dyn Engine,
    topic: &Topic,
    group: &Group,
    until: Timestamp,
    ids: &[EventId],
    is_lent: impl Fn(&EventId) -> bool,
) -> Result<Marks, Refusal> {
    let mut marks = Marks::of(topic, group, until);
    for id in ids {
        if is_lent(id) || engine.seek_id(topic, id).await?.is_some() {
            marks.add(id);
        }
    }
    Ok(marks)
}
