//! Which ids a topic has, and where.

use std::collections::HashMap;

use prombus_proto::{EventId, Seq};

use super::chunks::Chunks;

/// The places of ids.
#[derive(Default)]
pub(super) struct Places {
    /// UUIDs of version 7 that were newer than all before them, as most ids are: in order as they come,
    /// so that they need no table, which would be moved again and again as it grows.
    rising: Chunks<(u128, Seq)>,
    /// The newest that ever was there.
    newest: u128,
    /// All other ids.
    others: HashMap<EventId, Seq>,
}

impl Places {
    /// `id` is at `seq` from now on, unless it is there already: then answers where.
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

    /// Forgets the id of the oldest event.
    pub(super) fn forget(&mut self, id: &EventId) {
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

    /// Of version 7, the older the smaller the number.
    fn id(number: u128) -> EventId {
        EventId::from_uuid(Uuid::from_u128(number << 80 | 7 << 76 | 2 << 62))
    }

    #[test]
    fn every_id_is_there_once_whatever_its_form_and_order() {
        let text = EventId::new("any text").unwrap();
        let mut places = Places::default();
        let ids = [id(5), text, id(3), id(9), id(7)];
        for (id, seq) in ids.iter().zip(1..) {
            assert_eq!(places.add(id, Seq(seq)), None, "{id}");
        }
        for (id, seq) in ids.iter().zip(1..) {
            assert_eq!(places.find(id), Some(Seq(seq)), "{id}");
            assert_eq!(places.add(id, Seq(100)), Some(Seq(seq)), "{id}");
        }
    }

    #[test]
    fn what_is_forgotten_may_come_again_and_nothing_else() {
        let mut places = Places::default();
        for (number, seq) in [(5, 1), (3, 2), (9, 3)] {
            places.add(&id(number), Seq(seq));
        }
        for number in [5, 3, 9] {
            places.forget(&id(number));
            assert_eq!(places.find(&id(number)), None);
        }
        assert_eq!(places.add(&id(9), Seq(4)), None);
        assert_eq!(places.add(&id(9), Seq(5)), Some(Seq(4)));
        // Newer than all that are left, older than one that was.
        assert_eq!(places.add(&id(4), Seq(5)), None);
        assert_eq!(places.add(&id(4), Seq(6)), Some(Seq(5)));
    }
}
