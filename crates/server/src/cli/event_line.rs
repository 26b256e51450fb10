//! The identity of a stored event, parsed from its JSON line.

use prombus_proto::{EventId, Seq, Topic};
use serde::Deserialize;

/// The fields of a stored event that identify it.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct EventLine {
    pub(super) seq: Seq,
    pub(super) id: EventId,
    pub(super) topic: Topic,
}

impl EventLine {
    /// Returns `None` if the line is not a stored event.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Returns `true` if `partial` can be the start of an event line that was cut off.
    pub(super) fn may_start_with(partial: &[u8]) -> bool {
        const START: &[u8] = b"{\"seq\":";
        let compared = partial.len().min(START.len());
        partial[..compared] == START[..compared]
    }
}
