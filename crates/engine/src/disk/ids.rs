//! Which ids are stored where, so that an id is stored once.
//!
//! Most ids are UUIDs of version 7 that are newer than every one their topic had before. Such an id
//! is new without any look-up, and later it is found by halving: in order in memory while it is
//! only in the write-ahead log, then by the sparse index of its segment.
//!
//! All other ids are hashed. While their events are only in the write-ahead log they are in memory,
//! one table per log file ([`recent`]). A checkpoint turns a table into a sorted file ([`run`]), and
//! several files into one ([`merge`]). Memory is bounded by the write-ahead log; a look-up costs one
//! page per file, and files grow eightfold from level to level.

pub(crate) mod merge;
pub(crate) mod recent;
pub(crate) mod run;

use std::sync::Arc;

use prombus_proto::{EventId, Seq, Topic};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::recent::RecentIds;
use self::run::IdRun;

/// An id within its topic, as the index knows it. Different ids may share one: whoever finds a
/// place there looks at the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IdHash(pub(crate) u64);

/// The number of a topic in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ordinal(pub(crate) u32);

/// Where an id is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IdPlace {
    pub(crate) hash: IdHash,
    pub(crate) topic: Ordinal,
    pub(crate) seq: Seq,
}

/// What a topic's hashes start from. Secret per store, so that nobody can aim at one place.
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

/// The time within an id that rises with time.
pub(crate) fn millis_of(time_ordered: u128) -> u64 {
    u64::try_from(time_ordered >> 80).unwrap_or(u64::MAX)
}

/// All tables and files, for look-ups. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdIndex {
    /// Tables of log files that are full, oldest first.
    pub(crate) sealed: Vec<Arc<RecentIds>>,
    pub(crate) runs: Vec<Arc<IdRun>>,
}

/// The index cannot tell: a page of it is damaged.
#[derive(Debug)]
pub(crate) struct IndexDamaged {
    pub(crate) run: Arc<IdRun>,
    pub(crate) detail: String,
}

impl IdIndex {
    /// The places where `id` may be, newest first, without those of the newest log file.
    pub(crate) fn candidates(
        &self,
        hash: IdHash,
        topic: Ordinal,
        id: &EventId,
    ) -> Result<Vec<Seq>, IndexDamaged> {
        let mut found = Vec::new();
        let time_ordered = id.time_ordered();
        for table in self.sealed.iter().rev() {
            table.find(hash, topic, time_ordered, &mut found);
        }
        let time = time_ordered.map(millis_of);
        for run in self.runs.iter().rev().filter(|run| run.may_hold(time)) {
            run.find(hash, topic, &mut found)
                .map_err(|detail| IndexDamaged { run: Arc::clone(run), detail })?;
        }
        Ok(found)
    }
}
