//! Tells which UUIDv7 of a segment are found without the id runs.

use std::io;

use prombus_proto::{Seq, Topic};

use super::sparse_index;
use crate::disk::shared::Shared;
use crate::disk::storage::faults::is_damage;
use crate::disk::storage::file_system::Access;

/// The monotonic ids in each part of a segment. A look-up of an id reads the one part whose ids it is
/// among, so a UUIDv7 in any other part is found by its hash or not at all.
#[derive(Debug, Default)]
pub(crate) struct MonotonicIds {
    /// The first and the last event of the segment.
    events: Option<(Seq, Seq)>,
    /// The first event of each part and the newest monotonic id before it. Empty if the index is
    /// damaged.
    parts: Vec<(Seq, u128)>,
    newest_id: u128,
}

impl MonotonicIds {
    /// Those of the segment that has the event `seq`.
    pub(crate) fn around(shared: &Shared, topic: &Topic, seq: Seq) -> io::Result<Self> {
        let segment = {
            let view = shared.view();
            let segments = view.topics.get(topic).map_or(&[][..], |view| &view.segments);
            let found = segments.partition_point(|segment| segment.last < seq);
            let Some(segment) = segments.get(found) else { return Ok(Self::default()) };
            *segment
        };
        let mut parts = vec![(segment.first, segment.newest_id_before)];
        if segment.index_entries > 0 {
            let path = shared.layout.sparse_index(topic, segment.first);
            let read = shared.layout.fs().open(&path, Access::Read);
            let read = read.and_then(|index| sparse_index::read_all(&index, segment.index_entries));
            match read {
                Ok(Some(entries)) => {
                    parts.extend(entries.iter().map(|entry| (entry.seq, entry.newest_id_before)));
                }
                Ok(None) => parts.clear(),
                // Missing: damaged, or the segment was trimmed meanwhile.
                Err(error) if is_damage(&error) || error.kind() == io::ErrorKind::NotFound => {
                    parts.clear();
                }
                Err(error) => return Err(error),
            }
        }
        let events = Some((segment.first, segment.last));
        Ok(Self { events, parts, newest_id: segment.newest_id })
    }

    /// Returns `true` if `seq` is in the segment.
    pub(crate) fn cover(&self, seq: Seq) -> bool {
        self.events.is_some_and(|(first, last)| (first..=last).contains(&seq))
    }

    /// Returns `true` if a look-up of `id` finds it at `seq`, which is in the segment.
    pub(crate) fn contain(&self, seq: Seq, id: u128) -> bool {
        let next = self.parts.partition_point(|(first, _)| *first <= seq);
        let Some((_, newest_before)) = next.checked_sub(1).map(|part| self.parts[part]) else {
            return false;
        };
        let newest = self.parts.get(next).map_or(self.newest_id, |(_, newest)| *newest);
        newest_before < id && id <= newest
    }
}
