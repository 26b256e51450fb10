//! Decides which segments of a checkpoint go into a pack, and empties packs that are mostly unused.
//!
//! With a file per topic, a checkpoint of many topics with few events each would spend its time
//! creating and syncing files. Instead, all of them go into one pack. A topic whose packed segments
//! grow large gets a file of its own, and many small ones are merged, so that a topic has few of them.

use std::io;

use prombus_proto::Topic;

use super::Checkpointer;
use super::catalog::CatalogTopic;
use super::catalog::edit::CatalogEdit;
use super::sealed_wal::SealedWal;
use super::writing_topics::WrittenTopics;
use crate::disk::record::RecordSeed;
use crate::disk::segment::{Segment, pack};

/// The most packed segments at the end of a topic, before they are merged.
const MAX_PACKED_SEGMENTS: usize = 8;
/// The most bytes that a checkpoint moves out of sparse packs.
const MAX_MOVED_BYTES: u64 = 8 << 20;

/// Where a checkpoint puts the records of a topic, together with those of the packed segments `tail`
/// at its end, which come with their content.
pub(super) enum Placement {
    OwnFiles { tail: Vec<(Segment, Vec<u8>)> },
    Pack { tail: Vec<(Segment, Vec<u8>)> },
}

impl Checkpointer {
    /// Returns `true` if so many small topics are in the file that they share a pack.
    pub(super) fn has_many_small_topics(&self, sealed: &SealedWal) -> bool {
        let options = &self.shared.options;
        let is_small = |topic: &&Topic| {
            let bytes = self.bytes_in_wal(topic, sealed.file.number);
            0 < bytes && bytes < options.packed_bytes
        };
        sealed.touched.keys().filter(is_small).nth(options.small_files).is_some()
    }

    fn bytes_in_wal(&self, topic: &Topic, number: u64) -> u64 {
        let view = self.shared.view();
        let Some(view) = view.topics.get(topic) else { return 0 };
        let extents = view.wal.iter().take_while(|extent| extent.file.number <= number);
        extents.map(|extent| u64::from(extent.bytes)).sum()
    }

    /// Decides where to put `bytes` new bytes of the topic with this `row`. Removes the segments of the
    /// returned tail from it.
    pub(super) fn place(
        &self,
        row: &mut CatalogTopic,
        seed: RecordSeed,
        bytes: u64,
        has_many_small_topics: bool,
        has_age_limit: bool,
    ) -> io::Result<Placement> {
        let options = &self.shared.options;
        let now = options.clock.now();
        let is_young =
            |segment: &Segment| !has_age_limit || segment.is_young(now, options.segment_age_ms);
        let packed = |segment: &&Segment| segment.pack().is_some() && is_young(segment);
        let (count, packed_bytes) = row
            .segments
            .iter()
            .rev()
            .take_while(packed)
            .fold((0, 0), |(count, bytes), segment| (count + 1, bytes + segment.bytes()));
        if !has_many_small_topics || packed_bytes + bytes >= options.packed_bytes {
            return Ok(Placement::OwnFiles { tail: self.take_tail(row, seed, count)? });
        }
        let merged = if count >= MAX_PACKED_SEGMENTS { count } else { 0 };
        Ok(Placement::Pack { tail: self.take_tail(row, seed, merged)? })
    }

    /// Removes up to `count` segments from the end of `row` and returns them with their content. Stops
    /// at one that is damaged.
    fn take_tail(
        &self,
        row: &mut CatalogTopic,
        seed: RecordSeed,
        count: usize,
    ) -> io::Result<Vec<(Segment, Vec<u8>)>> {
        let mut tail: Vec<(Segment, Vec<u8>)> = Vec::new();
        while tail.len() < count
            && let Some(segment) = row.segments.last().copied()
            && tail.last().is_none_or(|(next, _)| segment.last.next() == next.first)
            && let Some(bytes) = pack::read_intact(&self.shared.layout, &segment, seed)?
        {
            row.segments.pop();
            tail.push((segment, bytes));
        }
        tail.reverse();
        Ok(tail)
    }

    /// Moves segments out of packs that are mostly unused.
    pub(super) fn empty_sparse_packs(
        &mut self,
        edit: &mut CatalogEdit,
        written: &mut WrittenTopics,
    ) -> io::Result<()> {
        let sparse = self.packs.sparse();
        if sparse.is_empty() {
            return Ok(());
        }
        let is_sparse =
            |segment: &Segment| segment.pack().is_some_and(|pack| sparse.contains(&pack));
        let has_sparse = |row: &CatalogTopic| row.segments.iter().any(is_sparse);
        let mut moved_bytes = 0;
        for (topic, row) in &self.catalog.topics {
            if moved_bytes > MAX_MOVED_BYTES {
                break;
            }
            let row = written.rows.get(topic).unwrap_or(row);
            if !has_sparse(row) || written.deleted.contains(topic) {
                continue;
            }
            let mut row = row.clone();
            let seed = RecordSeed::of(topic);
            for segment in row.segments.iter_mut().filter(|segment| is_sparse(segment)) {
                if let Some(bytes) = pack::read_intact(&self.shared.layout, segment, seed)? {
                    moved_bytes += bytes.len() as u64;
                    *segment = written.pack(&self.shared, edit)?.copy(segment, &bytes)?;
                } else if let Some(pack) = segment.pack() {
                    self.packs.mark_damaged(pack);
                }
            }
            written.rows.insert(topic.clone(), row);
        }
        Ok(())
    }
}
