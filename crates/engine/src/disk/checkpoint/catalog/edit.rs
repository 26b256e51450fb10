//! What one checkpoint or merge changes in the catalog.

use std::collections::{BTreeMap, BTreeSet};

use prombus_proto::{Seq, Topic};

use super::{Catalog, CatalogTopic};
use crate::disk::ids::run::IdRunInfo;
use crate::disk::state::run::StateRunInfo;

/// A change of the catalog. Its size depends on what changed and not on the number of topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogEdit {
    /// The number of the catalog that results.
    pub(crate) checkpoint: u64,
    pub(crate) checkpointed_wal: u64,
    pub(crate) next_frame: u64,
    pub(crate) last_version: u64,
    pub(crate) next_run: u64,
    /// All runs: there are few of them.
    pub(crate) id_runs: Vec<IdRunInfo>,
    pub(crate) dead_ids: u64,
    pub(crate) state_runs: Vec<StateRunInfo>,
    /// The topics that were deleted.
    pub(crate) removed: BTreeSet<Topic>,
    /// The topics that changed.
    pub(crate) topics: BTreeMap<Topic, TopicEdit>,
}

/// A change of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicEdit {
    /// The segments from here on are replaced by those of `row`.
    pub(crate) replaced_from: Seq,
    /// The new row. Of its segments, only those that differ from the old ones.
    pub(crate) row: CatalogTopic,
}

impl CatalogEdit {
    pub(crate) fn take_run_number(&mut self) -> u64 {
        self.next_run += 1;
        self.next_run - 1
    }
}

impl TopicEdit {
    /// Returns the edit that turns `old` into `new`.
    pub(crate) fn between(old: Option<&CatalogTopic>, mut new: CatalogTopic) -> Self {
        let old = old.map_or(&[][..], |old| &old.segments);
        let kept = old.iter().filter(|segment| segment.last >= new.first);
        let same = kept.zip(&new.segments).take_while(|(old, new)| old == new).count();
        let last_same = new.segments[..same].last();
        let replaced_from = last_same.map_or(Seq::ZERO, |segment| segment.last.next());
        new.segments.drain(..same);
        Self { replaced_from, row: new }
    }

    /// Returns the row that results from the segments of the old one.
    fn apply_to(self, old: Option<CatalogTopic>) -> CatalogTopic {
        let Self { replaced_from, row } = self;
        let mut segments = old.map_or_else(Vec::new, |old| old.segments);
        segments.retain(|old| old.last >= row.first && old.first < replaced_from);
        segments.extend_from_slice(&row.segments);
        CatalogTopic { segments, ..row }
    }
}

impl Catalog {
    /// Returns an edit that changes nothing but the number of the catalog.
    pub(crate) fn edit(&self) -> CatalogEdit {
        CatalogEdit {
            checkpoint: self.checkpoint + 1,
            checkpointed_wal: self.checkpointed_wal,
            next_frame: self.next_frame,
            last_version: self.last_version,
            next_run: self.next_run,
            id_runs: self.id_runs.clone(),
            dead_ids: self.dead_ids,
            state_runs: self.state_runs.clone(),
            removed: BTreeSet::new(),
            topics: BTreeMap::new(),
        }
    }

    pub(crate) fn apply(&mut self, edit: CatalogEdit) {
        self.checkpoint = edit.checkpoint;
        self.checkpointed_wal = edit.checkpointed_wal;
        self.next_frame = edit.next_frame;
        self.last_version = edit.last_version;
        self.next_run = edit.next_run;
        self.id_runs = edit.id_runs;
        self.dead_ids = edit.dead_ids;
        self.state_runs = edit.state_runs;
        edit.removed.iter().for_each(|name| drop(self.topics.remove(name)));
        for (name, topic) in edit.topics {
            let row = topic.apply_to(self.topics.remove(&name));
            self.topics.insert(name, row);
        }
    }
}

#[cfg(test)]
mod tests {
    use prombus_proto::Timestamp;

    use super::*;
    use crate::disk::ids::TopicOrdinal;
    use crate::disk::ids::ahead::NewestIds;
    use crate::disk::segment::{Segment, SegmentContent};

    fn segment(first: u64, last: u64) -> Segment {
        let first = Seq(first);
        let empty = Segment::empty(first, SegmentContent::Records, 32, 0, Timestamp(0));
        Segment { last: Seq(last), end: 32 + last, ..empty }
    }

    fn row(first: u64, segments: &[Segment]) -> CatalogTopic {
        CatalogTopic {
            ordinal: TopicOrdinal(0),
            first: Seq(first),
            next: Seq(100),
            newest_ids: NewestIds::default(),
            rule: 0,
            trimmed_arrival: Timestamp(0),
            segments: segments.to_vec(),
        }
    }

    #[test]
    fn an_edit_leads_from_the_old_row_to_the_new_one() {
        let (a, b, c, d) = (segment(1, 9), segment(10, 19), segment(20, 29), segment(30, 39));
        let longer_c = segment(20, 35);
        let cases: [(&[Segment], CatalogTopic, usize); 8] = [
            (&[], row(1, &[]), 0),
            (&[], row(1, &[a, b]), 2),
            (&[a, b], row(1, &[a, b]), 0),
            (&[a, b, c], row(1, &[a, b, longer_c]), 1),
            (&[a, b, c], row(12, &[b, c, d]), 1),
            (&[a, b, c, d], row(1, &[a, segment(10, 39)]), 1),
            (&[a, b], row(25, &[]), 0),
            (&[a, b, c], row(1, &[a, b]), 0),
        ];
        for (old, new, encoded) in cases {
            let old = row(1, old);
            let edit = TopicEdit::between(Some(&old), new.clone());
            assert_eq!(edit.row.segments.len(), encoded, "{old:?} to {new:?}");
            assert_eq!(edit.apply_to(Some(old)), new);
        }
    }
}
