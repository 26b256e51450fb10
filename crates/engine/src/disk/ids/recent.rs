//! The ids of the events in one WAL file, in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use prombus_proto::Seq;

use super::{IdEntry, IdHash, TopicOrdinal, millis_of};

/// A table of ids in memory.
///
/// Monotonic ids, which most are, need no hashing: they arrive sorted.
#[derive(Debug, Default)]
pub(crate) struct RecentIds {
    /// The UUIDv7 of each topic that were newer than all before them.
    monotonic: HashMap<TopicOrdinal, MonotonicIds>,
    /// All other ids.
    by_hash: HashMap<IdHash, (Seq, TopicOrdinal), BuildHasherDefault<IdentityHasher>>,
    /// Entries whose hash is already in `by_hash`. There are hardly ever any.
    collisions: Vec<IdEntry>,
    coverage: IdCoverage,
}

/// A UUIDv7 that was newer than every id of its topic before it, and its position. Stored in halves,
/// because the alignment of a `u128` would make it a third larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MonotonicId {
    high: u64,
    low: u64,
    seq: Seq,
}

impl MonotonicId {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a number")]
    pub(crate) const fn new(id: u128, seq: Seq) -> Self {
        Self { high: (id >> 64) as u64, low: id as u64, seq }
    }

    pub(crate) const fn id(&self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    pub(crate) const fn seq(&self) -> Seq {
        self.seq
    }
}

/// Monotonic ids in chunks, so that growing never copies what is there.
#[derive(Debug, Default)]
struct MonotonicIds {
    chunks: Vec<Vec<MonotonicId>>,
}

impl MonotonicIds {
    /// Chunks double in size, so that a topic with few ids takes little memory.
    const MIN_CHUNK: usize = 16;
    const MAX_CHUNK: usize = 16 << 10;

    fn extend(&mut self, mut ids: &[MonotonicId]) {
        while !ids.is_empty() {
            let room = self.chunks.last().map_or(0, |chunk| chunk.capacity() - chunk.len());
            if room == 0 {
                let before = self.chunks.last().map_or(0, Vec::len);
                let size = (before * 2).clamp(Self::MIN_CHUNK, Self::MAX_CHUNK);
                self.chunks.push(Vec::with_capacity(size));
                continue;
            }
            let (now, later) = ids.split_at(room.min(ids.len()));
            self.chunks.last_mut().expect("the last chunk has room").extend_from_slice(now);
            ids = later;
        }
    }

    fn find(&self, id: u128) -> Option<Seq> {
        let chunk = self.chunks.partition_point(|chunk| chunk[0].id() <= id).checked_sub(1)?;
        find_monotonic(&self.chunks[chunk], id)
    }
}

/// Which ids a table or run may contain, so that look-ups can skip it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdCoverage {
    /// The earliest and latest time of its UUIDv7, in Unix milliseconds.
    pub(crate) v7_millis: Option<(u64, u64)>,
    /// Whether it contains any other ids.
    pub(crate) others: bool,
}

impl IdCoverage {
    pub(crate) fn add(&mut self, time_ordered: Option<u128>) {
        match time_ordered.map(millis_of) {
            Some(millis) => {
                self.join(&IdCoverage { v7_millis: Some((millis, millis)), others: false });
            }
            None => self.others = true,
        }
    }

    pub(crate) fn join(&mut self, other: &IdCoverage) {
        self.others |= other.others;
        self.v7_millis = match (self.v7_millis, other.v7_millis) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (range, None) | (None, range) => range,
        };
    }

    /// Returns `true` if it may contain a UUIDv7 of this time, or for `None` an id of another kind.
    pub(crate) fn may_contain(&self, millis: Option<u64>) -> bool {
        match millis {
            Some(millis) => self.v7_millis.is_some_and(|(from, to)| (from..=to).contains(&millis)),
            None => self.others,
        }
    }
}

impl RecentIds {
    /// Adds ids in ascending order, all newer than those of the topic so far.
    pub(crate) fn add_monotonic(&mut self, topic: TopicOrdinal, ids: &[MonotonicId]) {
        if !ids.is_empty() {
            self.monotonic.entry(topic).or_default().extend(ids);
        }
    }

    /// Adds any other id.
    pub(crate) fn insert(&mut self, entry: IdEntry, time_ordered: Option<u128>) {
        self.coverage.add(time_ordered);
        match self.by_hash.entry(entry.hash) {
            Entry::Vacant(free) => {
                free.insert((entry.seq, entry.topic));
            }
            Entry::Occupied(_) => self.collisions.push(entry),
        }
    }

    /// Adds the positions that the id may have to `found`.
    pub(crate) fn find(
        &self,
        hash: IdHash,
        topic: TopicOrdinal,
        time_ordered: Option<u128>,
        found: &mut Vec<Seq>,
    ) {
        if let (Some(id), Some(monotonic)) = (time_ordered, self.monotonic.get(&topic)) {
            found.extend(monotonic.find(id));
        }
        let collisions = self.collisions.iter().filter(|entry| entry.hash == hash);
        let collisions = collisions.map(|entry| (entry.seq, entry.topic));
        let first = self.by_hash.get(&hash).copied();
        found.extend(
            first.into_iter().chain(collisions).filter(|(_, of)| *of == topic).map(|(seq, _)| seq),
        );
    }

    /// The coverage of the hashed ids.
    pub(crate) const fn coverage(&self) -> IdCoverage {
        self.coverage
    }

    /// Returns the entries of the hashed ids, sorted. Monotonic ids are not among them: the sparse
    /// indexes of the segments find them.
    pub(crate) fn sorted(&self) -> Vec<IdEntry> {
        let mut entries: Vec<_> = self
            .by_hash
            .iter()
            .map(|(hash, (seq, topic))| IdEntry { hash: *hash, topic: *topic, seq: *seq })
            .chain(self.collisions.iter().copied())
            .collect();
        entries.sort_unstable();
        entries
    }
}

/// Returns the position of `id` among monotonic ids.
pub(crate) fn find_monotonic(ids: &[MonotonicId], id: u128) -> Option<Seq> {
    let index = ids.binary_search_by_key(&id, MonotonicId::id).ok()?;
    Some(ids[index].seq)
}

/// Uses keys as they are, because they are hashes already.
#[derive(Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an `IdHash` is one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hash: u64, topic: u32, seq: u64) -> IdEntry {
        IdEntry { hash: IdHash(hash), topic: TopicOrdinal(topic), seq: Seq(seq) }
    }

    fn found(table: &RecentIds, hash: u64, topic: u32) -> Vec<Seq> {
        let mut found = Vec::new();
        table.find(IdHash(hash), TopicOrdinal(topic), None, &mut found);
        found
    }

    #[test]
    fn finds_all_ids_with_the_same_hash() {
        let mut table = RecentIds::default();
        table.insert(entry(5, 0, 1), None);
        table.insert(entry(5, 0, 2), None);
        table.insert(entry(5, 1, 7), None);
        assert_eq!(found(&table, 5, 0), [Seq(1), Seq(2)]);
        assert_eq!(found(&table, 5, 1), [Seq(7)]);
        assert_eq!(found(&table, 6, 0), []);
        let all = [entry(5, 0, 1), entry(5, 0, 2), entry(5, 1, 7)];
        assert_eq!(table.sorted(), all);
    }

    #[test]
    fn finds_monotonic_ids_in_their_topic() {
        let monotonic: Vec<_> =
            (1..=50u64).map(|n| MonotonicId::new(u128::from(n * 2) << 80 | 5, Seq(n))).collect();
        let mut table = RecentIds::default();
        table.add_monotonic(TopicOrdinal(3), &monotonic[..20]);
        table.add_monotonic(TopicOrdinal(3), &monotonic[20..]);
        for n in 1..=101u64 {
            for topic in [2, 3] {
                let mut found = Vec::new();
                table.find(
                    IdHash(n),
                    TopicOrdinal(topic),
                    Some(u128::from(n) << 80 | 5),
                    &mut found,
                );
                let is_there = n % 2 == 0 && topic == 3;
                assert_eq!(found, if is_there { vec![Seq(n / 2)] } else { vec![] });
            }
        }
        assert_eq!(table.sorted(), []);
    }

    #[test]
    fn coverage_excludes_ids_that_were_never_added() {
        let mut coverage = IdCoverage::default();
        assert!(!coverage.may_contain(None) && !coverage.may_contain(Some(3)));
        coverage.add(Some(10 << 80));
        coverage.add(Some(20 << 80));
        assert!(
            coverage.may_contain(Some(10))
                && coverage.may_contain(Some(15))
                && coverage.may_contain(Some(20))
        );
        assert!(
            !coverage.may_contain(Some(9))
                && !coverage.may_contain(Some(21))
                && !coverage.may_contain(None)
        );
        coverage.add(None);
        assert!(coverage.may_contain(None));
    }
}
