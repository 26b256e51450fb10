//! How much of each pack is still in use, and how much is in files of single topics.

use std::collections::{BTreeMap, BTreeSet};

use super::catalog::Catalog;
use crate::disk::segment::{Segment, sparse_index};
use crate::disk::storage::file_system::Access;
use crate::disk::storage::layout::Layout;

/// The files of segments that the catalog names.
#[derive(Debug, Default)]
pub(super) struct PackUsage {
    packs: BTreeMap<u64, PackUse>,
    /// Packs with damaged segments, which stay where they are.
    damaged: BTreeSet<u64>,
    /// Bytes of segments that have files of their own, and of their indexes.
    unpacked_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PackUse {
    live_bytes: u64,
    /// The length of the file, or the offset at which the last segment ever seen ends.
    end: u64,
}

impl PackUsage {
    pub(super) fn of(layout: &Layout, catalog: &Catalog) -> Self {
        let mut usage = Self::default();
        catalog.topics.values().for_each(|row| usage.add(&row.segments));
        // The segments at its end may be gone. If the length is not known, less of it seems unused.
        for (pack, found) in &mut usage.packs {
            let file = layout.fs().open(&layout.pack(*pack), Access::Read);
            found.end = file.and_then(|file| file.len()).unwrap_or(0).max(found.end);
        }
        usage
    }

    /// Counts the segments.
    pub(super) fn add(&mut self, segments: &[Segment]) {
        self.unpacked_bytes += unpacked_bytes(segments);
        for (pack, segment) in in_packs(segments) {
            let usage = self.packs.entry(pack).or_default();
            usage.live_bytes += segment.bytes();
            usage.end = usage.end.max(segment.end);
        }
    }

    /// The reverse of [`PackUsage::add`].
    pub(super) fn remove(&mut self, segments: &[Segment]) {
        self.unpacked_bytes -= unpacked_bytes(segments);
        for (pack, segment) in in_packs(segments) {
            if let Some(usage) = self.packs.get_mut(&pack) {
                usage.live_bytes -= segment.bytes();
            }
        }
    }

    pub(super) const fn unpacked_bytes(&self) -> u64 {
        self.unpacked_bytes
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.packs.keys().copied()
    }

    /// Forgets the packs that have no segment any more, and returns their numbers.
    pub(super) fn take_unused(&mut self) -> Vec<u64> {
        let unused = self.packs.extract_if(.., |_, usage| usage.live_bytes == 0);
        unused.map(|(pack, _)| pack).collect()
    }

    /// Returns the packs of which less than half is in use, and whose segments can be moved.
    pub(super) fn sparse(&self) -> BTreeSet<u64> {
        let is_sparse = |usage: &PackUse| 0 < usage.live_bytes && usage.live_bytes < usage.end / 2;
        let sparse = self.packs.iter().filter(|(_, usage)| is_sparse(usage));
        sparse.map(|(pack, _)| *pack).filter(|pack| !self.damaged.contains(pack)).collect()
    }

    pub(super) fn mark_damaged(&mut self, pack: u64) {
        self.damaged.insert(pack);
    }
}

fn unpacked_bytes(segments: &[Segment]) -> u64 {
    let unpacked = segments.iter().filter(|segment| segment.pack().is_none());
    unpacked.map(|segment| segment.end + sparse_index::file_bytes(segment.index_entries)).sum()
}

fn in_packs(segments: &[Segment]) -> impl Iterator<Item = (u64, &Segment)> {
    segments.iter().filter_map(|segment| Some((segment.pack()?, segment)))
}
