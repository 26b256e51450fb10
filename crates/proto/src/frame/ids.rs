//! The event ids of a frame: `id` or `ids`.

use super::error::FrameError;
use super::json::Cursor;
use super::{Members, field, write};
use crate::EventId;

/// The event ids that a frame names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// From `id`.
    One(EventId),
    /// From `ids`; never empty.
    Many(Vec<EventId>),
}

impl Ids {
    /// Returns the ids in the order of the frame.
    #[must_use]
    pub fn as_slice(&self) -> &[EventId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }

    /// Converts into the ids, in the order of the frame.
    #[must_use]
    pub fn into_vec(self) -> Vec<EventId> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }

    pub(super) fn read(members: &Members<'_>, max: usize) -> Result<Self, FrameError> {
        match (field::present(members.id), field::present(members.ids)) {
            (Some(_), Some(_)) => Err(FrameError::bad_frame("send either id or ids, not both")),
            (None, None) => Err(FrameError::bad_frame("id or ids is missing")),
            (Some(id), None) => Ok(Self::One(field::event_id("id", id)?)),
            (None, Some(ids)) => {
                let read = |index, cursor: &mut Cursor<'_>| {
                    field::event_id_in("ids", index, cursor.value()?)
                };
                Ok(Self::Many(field::list("ids", "event ids", ids, 1..=max, read)?))
            }
        }
    }

    pub(super) fn write_member(&self, out: &mut Vec<u8>) {
        match self {
            Self::One(id) => {
                write::member(out, "id");
                write::event_id(out, id);
            }
            Self::Many(ids) => {
                write::member(out, "ids");
                write::event_ids(out, ids);
            }
        }
    }
}
