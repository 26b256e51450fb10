//! The index of event ids, which makes sure that an id is stored once per topic.
//!
//! Most ids are UUIDv7 that are newer than every id their topic had before, and not far ahead of the
//! clock ([`ahead`]). Such a monotonic id is
//! known to be new without a look-up, and binary search finds it later: in memory while it is only in
//! the write-ahead log, then by the sparse index of its segment.
//!
//! All other ids are hashed. While their events are only in the write-ahead log they are in memory,
//! in one table per WAL file ([`recent`]). A checkpoint writes a table as a sorted run ([`run`]), and
//! several runs are merged into one ([`merge`]). The write-ahead log bounds the memory. A look-up
//! asks the filter of each run and reads a page of those that may have the id. Runs grow eightfold
//! from level to level.

pub(crate) mod ahead;
pub(crate) mod merge;
pub(crate) mod recent;
pub(crate) mod run;

use std::sync::Arc;

use prombus_proto::{EventId, Seq, Topic};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::recent::RecentIds;
use self::run::IdRun;
use super::sorted_runs::RunFault;

/// The hash of an id within its topic. Hashes may collide, so a match has to be verified by reading
/// the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IdHash(pub(crate) u64);

/// The number of a topic in the index; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicOrdinal(pub(crate) u32);

/// An entry of the index: the position of a hashed id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IdEntry {
    pub(crate) hash: IdHash,
    pub(crate) topic: TopicOrdinal,
    pub(crate) seq: Seq,
}

/// The seed of a topic's hashes. Secret per store, so that nobody can provoke collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdSeed(u64);

impl IdSeed {
    pub(crate) fn of(store_seed: u64, topic: &Topic) -> Self {
        Self(xxh3_64_with_seed(topic.as_str().as_bytes(), store_seed))
    }

    pub(crate) fn hash(self, id: &EventId) -> IdHash {
        IdHash(xxh3_64_with_seed(id.as_bytes(), self.0))
    }
}

/// The Unix time in milliseconds within a UUIDv7.
pub(crate) fn millis_of(time_ordered: u128) -> u64 {
    u64::try_from(time_ordered >> 80).unwrap_or(u64::MAX)
}

/// The tables of sealed WAL files and the sorted runs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdIndex {
    /// Oldest first.
    pub(crate) sealed: Vec<Arc<RecentIds>>,
    pub(crate) runs: Vec<Arc<IdRun>>,
}

/// An id run could not be read, so the index cannot tell whether an id is stored.
#[derive(Debug)]
pub(crate) struct FailedLookup {
    pub(crate) run: Arc<IdRun>,
    pub(crate) fault: RunFault,
}

impl IdIndex {
    /// Returns the positions that `id` may have, newest first.
    pub(crate) fn candidates(
        &self,
        hash: IdHash,
        topic: TopicOrdinal,
        id: &EventId,
    ) -> Result<Vec<Seq>, FailedLookup> {
        let mut found = Vec::new();
        let time_ordered = id.time_ordered();
        for table in self.sealed.iter().rev() {
            table.find(hash, topic, time_ordered, &mut found);
        }
        let millis = time_ordered.map(millis_of);
        for run in self.runs.iter().rev().filter(|run| run.info.coverage.may_contain(millis)) {
            run.find(hash, topic, &mut found)
                .map_err(|fault| FailedLookup { run: Arc::clone(run), fault })?;
        }
        Ok(found)
    }
}
