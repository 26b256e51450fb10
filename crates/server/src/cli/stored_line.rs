//! A line that holds an event as it is stored: where it is, and whose.

use prombus_proto::{EventId, Seq, Topic};
use serde::Deserialize;

/// What tells a line's event from others.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct StoredLine {
    pub(super) seq: Seq,
    pub(super) id: EventId,
    pub(super) topic: Topic,
}

impl StoredLine {
    /// Nothing if the line is no stored event.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// How every such line begins; a torn one may end within it.
    pub(super) fn may_begin_with(torn: &[u8]) -> bool {
        const BEGINNING: &[u8] = b"{\"seq\":";
        let compared = torn.len().min(BEGINNING.len());
        torn[..compared] == BEGINNING[..compared]
    }
}
