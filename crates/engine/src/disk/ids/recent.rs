//! The ids in one file of the write-ahead log.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use prombus_proto::Seq;

use super::{IdHash, IdPlace, Ordinal, millis_of};

/// A table of ids in memory.
///
/// Ids that rise with time, as most do, need no hashing here: they are in order as they come.
#[derive(Debug, Default)]
pub(crate) struct RecentIds {
    /// Of each topic the UUIDs of version 7 that were newer than all before them.
    rising: HashMap<Ordinal, RisingIds>,
    /// All other ids.
    places: HashMap<IdHash, (Seq, Ordinal), BuildHasherDefault<HashIsTheHash>>,
    /// Places whose hash another id had first. Hardly ever any.
    crowded: Vec<IdPlace>,
    kinds: IdKinds,
}

/// A UUID of version 7 that was newer than all before it, and where it is. In halves, because a
/// whole number would make it a third larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RisingId {
    high: u64,
    low: u64,
    seq: Seq,
}

impl RisingId {
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

/// Ids that rise, in parts: what is there is never moved to make room for more.
#[derive(Debug, Default)]
struct RisingIds {
    parts: Vec<Vec<RisingId>>,
}

impl RisingIds {
    /// A topic with few ids has a small part, one with many has larger ones.
    const SMALLEST_PART: usize = 16;
    const LARGEST_PART: usize = 16 << 10;

    fn extend(&mut self, mut ids: &[RisingId]) {
        while !ids.is_empty() {
            let room = self.parts.last().map_or(0, |part| part.capacity() - part.len());
            if room == 0 {
                let before = self.parts.last().map_or(0, Vec::len);
                let size = (before * 2).clamp(Self::SMALLEST_PART, Self::LARGEST_PART);
                self.parts.push(Vec::with_capacity(size));
                continue;
            }
            let (now, later) = ids.split_at(room.min(ids.len()));
            self.parts.last_mut().expect("there is one with room").extend_from_slice(now);
            ids = later;
        }
    }

    fn find(&self, id: u128) -> Option<Seq> {
        let part = self.parts.partition_point(|part| part[0].id() <= id).checked_sub(1)?;
        find_rising(&self.parts[part], id)
    }
}

/// Which kinds of ids a table or file holds, so that look-ups can pass it by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdKinds {
    /// The times of its UUIDs of version 7, earliest and latest.
    pub(crate) times: Option<(u64, u64)>,
    /// Whether it holds any other ids.
    pub(crate) others: bool,
}

impl IdKinds {
    pub(crate) fn add(&mut self, time_ordered: Option<u128>) {
        match time_ordered.map(millis_of) {
            Some(time) => self.join(&IdKinds { times: Some((time, time)), others: false }),
            None => self.others = true,
        }
    }

    pub(crate) fn join(&mut self, other: &IdKinds) {
        self.others |= other.others;
        self.times = match (self.times, other.times) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (times, None) | (None, times) => times,
        };
    }

    /// Whether an id with this time (or none) may be among them.
    pub(crate) fn may_hold(&self, time: Option<u64>) -> bool {
        match time {
            Some(time) => self.times.is_some_and(|(from, to)| (from..=to).contains(&time)),
            None => self.others,
        }
    }
}

impl RecentIds {
    /// Adds ids that rise, and are newer than all that were added of their topic.
    pub(crate) fn add_rising(&mut self, topic: Ordinal, ids: &[RisingId]) {
        if !ids.is_empty() {
            self.rising.entry(topic).or_default().extend(ids);
        }
    }

    /// Adds any other id.
    pub(crate) fn insert(&mut self, place: IdPlace, time_ordered: Option<u128>) {
        self.kinds.add(time_ordered);
        match self.places.entry(place.hash) {
            Entry::Vacant(free) => {
                free.insert((place.seq, place.topic));
            }
            Entry::Occupied(_) => self.crowded.push(place),
        }
    }

    /// Adds the places where the id may be to `found`.
    pub(crate) fn find(
        &self,
        hash: IdHash,
        topic: Ordinal,
        time_ordered: Option<u128>,
        found: &mut Vec<Seq>,
    ) {
        if let (Some(id), Some(rising)) = (time_ordered, self.rising.get(&topic)) {
            found.extend(rising.find(id));
        }
        let crowded = self.crowded.iter().filter(|place| place.hash == hash);
        let crowded = crowded.map(|place| (place.seq, place.topic));
        let first = self.places.get(&hash).copied();
        found.extend(
            first.into_iter().chain(crowded).filter(|(_, of)| *of == topic).map(|(seq, _)| seq),
        );
    }

    /// The kinds of the ids that do not rise.
    pub(crate) const fn kinds(&self) -> IdKinds {
        self.kinds
    }

    /// The places of the ids that do not rise, in the order of their hashes. Those that do are
    /// found by the segments' own indexes.
    pub(crate) fn sorted(&self) -> Vec<IdPlace> {
        let mut places: Vec<_> = self
            .places
            .iter()
            .map(|(hash, (seq, topic))| IdPlace { hash: *hash, topic: *topic, seq: *seq })
            .chain(self.crowded.iter().copied())
            .collect();
        places.sort_unstable();
        places
    }
}

/// Where `id` is among ids that rise.
pub(crate) fn find_rising(rising: &[RisingId], id: u128) -> Option<Seq> {
    let index = rising.binary_search_by_key(&id, RisingId::id).ok()?;
    Some(rising[index].seq)
}

/// The keys are hashes already.
#[derive(Debug, Default)]
struct HashIsTheHash(u64);

impl Hasher for HashIsTheHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("ids are hashed as one number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(hash: u64, topic: u32, seq: u64) -> IdPlace {
        IdPlace { hash: IdHash(hash), topic: Ordinal(topic), seq: Seq(seq) }
    }

    fn found(table: &RecentIds, hash: u64, topic: u32) -> Vec<Seq> {
        let mut found = Vec::new();
        table.find(IdHash(hash), Ordinal(topic), None, &mut found);
        found
    }

    #[test]
    fn ids_that_share_a_hash_are_all_found() {
        let mut table = RecentIds::default();
        table.insert(place(5, 0, 1), None);
        table.insert(place(5, 0, 2), None);
        table.insert(place(5, 1, 7), None);
        assert_eq!(found(&table, 5, 0), [Seq(1), Seq(2)]);
        assert_eq!(found(&table, 5, 1), [Seq(7)]);
        assert_eq!(found(&table, 6, 0), []);
        let all = [place(5, 0, 1), place(5, 0, 2), place(5, 1, 7)];
        assert_eq!(table.sorted(), all);
    }

    #[test]
    fn ids_that_rise_are_found_in_their_topic() {
        let rising: Vec<_> =
            (1..=50u64).map(|n| RisingId::new(u128::from(n * 2) << 80 | 5, Seq(n))).collect();
        let mut table = RecentIds::default();
        table.add_rising(Ordinal(3), &rising[..20]);
        table.add_rising(Ordinal(3), &rising[20..]);
        for n in 1..=101u64 {
            for topic in [2, 3] {
                let mut found = Vec::new();
                table.find(IdHash(n), Ordinal(topic), Some(u128::from(n) << 80 | 5), &mut found);
                let is_there = n % 2 == 0 && topic == 3;
                assert_eq!(found, if is_there { vec![Seq(n / 2)] } else { vec![] });
            }
        }
        assert_eq!(table.sorted(), []);
    }

    #[test]
    fn kinds_tell_what_cannot_be_there() {
        let mut kinds = IdKinds::default();
        assert!(!kinds.may_hold(None) && !kinds.may_hold(Some(3)));
        kinds.add(Some(10 << 80));
        kinds.add(Some(20 << 80));
        assert!(kinds.may_hold(Some(10)) && kinds.may_hold(Some(15)) && kinds.may_hold(Some(20)));
        assert!(!kinds.may_hold(Some(9)) && !kinds.may_hold(Some(21)) && !kinds.may_hold(None));
        kinds.add(None);
        assert!(kinds.may_hold(None));
    }
}
