//! The catalog: the store as of its last checkpoint, with its topics, segments and sorted runs.
//!
//! Each checkpoint records what it changed ([`edit`]) in a new file; now and then the whole catalog is
//! written again ([`files`]). Everything else depends on it: a segment is valid up to the length that
//! the catalog gives, so whatever an unfinished checkpoint left is simply overwritten.

pub(crate) mod edit;
mod encoding;
pub(crate) mod files;
pub(crate) mod inspect;

use std::collections::BTreeMap;
use std::path::PathBuf;

use prombus_proto::{Seq, Timestamp, Topic};

use crate::disk::ids::TopicOrdinal;
use crate::disk::ids::ahead::NewestIds;
use crate::disk::ids::run::IdRunInfo;
use crate::disk::segment::Segment;
use crate::disk::state::run::StateRunInfo;
use crate::disk::storage::layout::Layout;

/// The store as of its last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Counts the checkpoints.
    pub(crate) checkpoint: u64,
    /// The number of the last WAL file that was checkpointed.
    pub(crate) checkpointed_wal: u64,
    pub(crate) next_frame: u64,
    pub(crate) last_version: u64,
    /// A secret that makes the hashes of ids unpredictable.
    pub(crate) store_seed: u64,
    /// The number of the next pack or sorted run, of ids or state.
    pub(crate) next_run: u64,
    pub(crate) id_runs: Vec<IdRunInfo>,
    /// An upper bound of the ids in `id_runs` whose topics were deleted.
    pub(crate) dead_ids: u64,
    /// Oldest first.
    pub(crate) state_runs: Vec<StateRunInfo>,
    pub(crate) topics: BTreeMap<Topic, CatalogTopic>,
}

/// A topic as of the last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogTopic {
    pub(crate) ordinal: TopicOrdinal,
    pub(crate) first: Seq,
    pub(crate) next: Seq,
    pub(crate) newest_ids: NewestIds,
    /// The revision of the newest retention rule that was applied.
    pub(crate) rule: u64,
    /// The latest arrival of the trimmed events.
    pub(crate) trimmed_arrival: Timestamp,
    pub(crate) segments: Vec<Segment>,
}

impl CatalogTopic {
    /// Removes the segments that end before the first event, and returns the files that only they
    /// used.
    pub(crate) fn drop_trimmed(&mut self, layout: &Layout, topic: &Topic) -> Vec<PathBuf> {
        let trimmed = self.segments.partition_point(|segment| segment.last < self.first);
        let dropped = self.segments.drain(..trimmed);
        files_of(layout, topic, dropped).collect()
    }

    /// Returns the files that only its segments use.
    pub(crate) fn files(&self, layout: &Layout, topic: &Topic) -> Vec<PathBuf> {
        files_of(layout, topic, self.segments.iter().copied()).collect()
    }
}

fn files_of(
    layout: &Layout,
    topic: &Topic,
    segments: impl Iterator<Item = Segment>,
) -> impl Iterator<Item = PathBuf> {
    let files = move |segment: Segment| {
        [layout.segment(topic, segment.first), layout.sparse_index(topic, segment.first)]
    };
    segments.filter(|segment| segment.pack().is_none()).flat_map(files)
}

impl Catalog {
    /// The catalog of an empty store.
    pub(crate) fn new(store_seed: u64) -> Self {
        Self {
            checkpoint: 0,
            checkpointed_wal: 0,
            next_frame: 1,
            last_version: 0,
            store_seed,
            next_run: 1,
            id_runs: Vec::new(),
            dead_ids: 0,
            state_runs: Vec::new(),
            topics: BTreeMap::new(),
        }
    }

    pub(crate) fn segments(&self, topic: &Topic) -> &[Segment] {
        self.topics.get(topic).map_or(&[], |row| &row.segments)
    }

    pub(crate) fn take_run_number(&mut self) -> u64 {
        self.next_run += 1;
        self.next_run - 1
    }
}
