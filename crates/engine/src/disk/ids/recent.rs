//! The ids in one file of the write-ahead log.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use prombus_proto::Seq;

use super::{IdHash, IdPlace, Ordinal, millis_of};

/// A table of ids in memory.
#[derive(Debug, Default)]
pub(in crate::disk) struct RecentIds {
    places: HashMap<IdHash, (Seq, Ordinal), BuildHasherDefault<HashIsTheHash>>,
    /// Places whose hash another id had first. Hardly ever any.
    crowded: Vec<IdPlace>,
    kinds: IdKinds,
}

/// Which kinds of ids a table or file holds, so that look-ups can pass it by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::disk) struct IdKinds {
    /// The times of its UUIDs of version 7, earliest and latest.
    pub(in crate::disk) times: Option<(u64, u64)>,
    /// Whether it holds any other ids.
    pub(in crate::disk) others: bool,
}

impl IdKinds {
    pub(in crate::disk) fn add(&mut self, time_ordered: Option<u128>) {
        match time_ordered.map(millis_of) {
            Some(time) => self.join(&IdKinds { times: Some((time, time)), others: false }),
            None => self.others = true,
        }
    }

    pub(in crate::disk) fn join(&mut self, other: &IdKinds) {
        self.others |= other.others;
        self.times = match (self.times, other.times) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (times, None) | (None, times) => times,
        };
    }

    /// Whether an id with this time (or none) may be among them.
    pub(in crate::disk) fn may_hold(&self, time: Option<u64>) -> bool {
        match time {
            Some(time) => self.times.is_some_and(|(from, to)| (from..=to).contains(&time)),
            None => self.others,
        }
    }
}

impl RecentIds {
    pub(in crate::disk) fn insert(&mut self, place: IdPlace, time_ordered: Option<u128>) {
        self.kinds.add(time_ordered);
        match self.places.entry(place.hash) {
            Entry::Vacant(free) => {
                free.insert((place.seq, place.topic));
            }
            Entry::Occupied(_) => self.crowded.push(place),
        }
    }

    /// Takes back an insert whose event was not stored after all.
    pub(in crate::disk) fn remove(&mut self, place: IdPlace) {
        if let Entry::Occupied(taken) = self.places.entry(place.hash)
            && *taken.get() == (place.seq, place.topic)
        {
            taken.remove();
        }
        self.crowded.retain(|crowded| *crowded != place);
    }

    pub(in crate::disk) fn find(&self, hash: IdHash, topic: Ordinal, found: &mut Vec<Seq>) {
        let crowded = self.crowded.iter().filter(|place| place.hash == hash);
        let crowded = crowded.map(|place| (place.seq, place.topic));
        let first = self.places.get(&hash).copied();
        found.extend(
            first.into_iter().chain(crowded).filter(|(_, of)| *of == topic).map(|(seq, _)| seq),
        );
    }

    pub(in crate::disk) fn len(&self) -> usize {
        self.places.len() + self.crowded.len()
    }

    pub(in crate::disk) const fn kinds(&self) -> IdKinds {
        self.kinds
    }

    pub(in crate::disk) fn sorted(&self) -> Vec<IdPlace> {
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
        table.find(IdHash(hash), Ordinal(topic), &mut found);
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
        table.remove(place(5, 0, 1));
        assert_eq!(found(&table, 5, 0), [Seq(2)]);
        table.remove(place(5, 0, 2));
        assert_eq!(found(&table, 5, 0), []);
        assert_eq!(table.sorted(), [place(5, 1, 7)]);
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
