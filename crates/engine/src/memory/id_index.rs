//! The ids of a topic's events and their positions.

use std::collections::HashMap;

use prombus_proto::{EventId, Seq};

use super::chunks::Chunks;

/// Maps the ids of the retained events to their positions.
#[derive(Default)]
pub(super) struct IdIndex {
    /// UUIDs of version 7 that were greater than all before them, as most ids are. They arrive
    /// sorted, so they need no hash table, which would be rehashed again and again as it grows.
    rising: Chunks<(u128, Seq)>,
    /// The greatest id ever in `rising`.
    newest: u128,
    /// All other ids.
    others: HashMap<EventId, Seq>,
}

impl IdIndex {
    /// Adds `id` at `seq`. If it is already there, changes nothing and returns its position.
    pub(super) fn add(&mut self, id: &EventId, seq: Seq) -> Option<Seq> {
        if let Some(rising) = id.time_ordered().filter(|id| *id > self.newest) {
            self.newest = rising;
            self.rising.push_back((rising, seq));
            return None;
        }
        let known = self.find(id);
        if known.is_none() {
            self.others.insert(id.clone(), seq);
        }
        known
    }

    pub(super) fn find(&self, id: &EventId) -> Option<Seq> {
        let rising = id.time_ordered().and_then(|id| {
            self.rising.find_by_key(&id, |(rising, _)| *rising).map(|(_, seq)| *seq)
        });
        rising.or_else(|| self.others.get(id).copied())
    }

    /// Removes `id`, which must be that of the oldest event.
    pub(super) fn remove_oldest(&mut self, id: &EventId) {
        if self.rising.front().is_some_and(|(oldest, _)| Some(*oldest) == id.time_ordered()) {
            self.rising.pop_front();
        } else {
            self.others.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// A UUID of version 7 that grows with `number`.
    fn id(number: u128) -> EventId {
        EventId::from_uuid(Uuid::from_u128(number << 80 | 7 << 76 | 2 << 62))
    }

    #[test]
    fn finds_every_id_once_whatever_its_form_and_order() {
        let text = EventId::new("any text").unwrap();
        let mut index = IdIndex::default();
        let ids = [id(5), text, id(3), id(9), id(7)];
        for (id, seq) in ids.iter().zip(1..) {
            assert_eq!(index.add(id, Seq(seq)), None, "{id}");
        }
        for (id, seq) in ids.iter().zip(1..) {
            assert_eq!(index.find(id), Some(Seq(seq)), "{id}");
            assert_eq!(index.add(id, Seq(100)), Some(Seq(seq)), "{id}");
        }
    }

    #[test]
    fn only_removed_ids_can_be_added_again() {
        let mut index = IdIndex::default();
        for (number, seq) in [(5, 1), (3, 2), (9, 3)] {
            index.add(&id(number), Seq(seq));
        }
        for number in [5, 3, 9] {
            index.remove_oldest(&id(number));
            assert_eq!(index.find(&id(number)), None);
        }
        assert_eq!(index.add(&id(9), Seq(4)), None);
        assert_eq!(index.add(&id(9), Seq(5)), Some(Seq(4)));
        // Greater than all remaining ids, but smaller than a removed one.
        assert_eq!(index.add(&id(4), Seq(5)), None);
        assert_eq!(index.add(&id(4), Seq(6)), Some(Seq(5)));
    }
}
