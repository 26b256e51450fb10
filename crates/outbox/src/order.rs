//! Order within a key: which documents may be sent without overtaking others.

pub(crate) mod selection;

use std::collections::HashSet;

use mongodb::bson::{Bson, Document};

/// A topic and a key. Events that have both in common keep their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OrderingKey {
    pub(crate) topic: String,
    pub(crate) key: String,
}

impl OrderingKey {
    /// Returns `None` if the document has no key. A topic or a key that is not a string makes the
    /// document no event, and it holds up no other.
    pub(crate) fn of(document: &Document) -> Option<Self> {
        let text = |name| document.get_str(name).ok().map(str::to_owned);
        Some(Self { topic: text("topic")?, key: text("key")? })
    }
}

/// A document with an ordering key that is neither sent nor skipped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnsentDocument {
    pub(crate) id: Bson,
    pub(crate) ordering_key: OrderingKey,
    pub(crate) holder: Holder,
}

/// Which worker publishes a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    ThisWorker,
    OtherWorker,
    /// None: the document is marked as an error until somebody intervenes.
    Rejected,
}

/// What order allows this worker to send.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Sendable {
    /// Documents of this worker that overtake no other.
    pub(crate) ids: HashSet<Bson>,
    /// A document of this worker only waits for another worker.
    pub(crate) waits_for_others: bool,
}

/// Returns which documents of this worker may be sent: for each ordering key those before the first
/// one that is not this worker's. `unsent` has all unsent documents of the keys up to this worker's
/// last one, in the order of the database.
pub(crate) fn sendable(unsent: impl IntoIterator<Item = UnsentDocument>) -> Sendable {
    let mut blocked: HashSet<OrderingKey> = HashSet::new();
    let mut blocked_by_others: HashSet<OrderingKey> = HashSet::new();
    let mut sendable = Sendable::default();
    for UnsentDocument { id, ordering_key, holder } in unsent {
        let is_blocked = blocked.contains(&ordering_key);
        match holder {
            Holder::ThisWorker if is_blocked => {
                sendable.waits_for_others |= blocked_by_others.contains(&ordering_key);
            }
            Holder::ThisWorker => {
                sendable.ids.insert(id);
            }
            Holder::OtherWorker if !is_blocked => {
                blocked_by_others.insert(ordering_key.clone());
                blocked.insert(ordering_key);
            }
            Holder::OtherWorker | Holder::Rejected => {
                blocked.insert(ordering_key);
            }
        }
    }
    sendable
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Holder::{OtherWorker, Rejected, ThisWorker};
    use super::*;

    fn unsent(number: i32, key: &str, holder: Holder) -> UnsentDocument {
        let ordering_key = OrderingKey { topic: "t".to_owned(), key: key.to_owned() };
        UnsentDocument { id: Bson::Int32(number), ordering_key, holder }
    }

    fn numbers(sendable: &Sendable) -> Vec<i32> {
        let mut all: Vec<_> = sendable.ids.iter().filter_map(Bson::as_i32).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn documents_of_others_and_rejected_ones_are_not_overtaken() {
        let all = sendable([
            unsent(1, "a", ThisWorker),
            unsent(2, "b", OtherWorker),
            unsent(3, "a", ThisWorker),
            unsent(4, "b", ThisWorker),
            unsent(5, "a", Rejected),
            unsent(6, "a", ThisWorker),
            unsent(7, "c", ThisWorker),
        ]);
        assert_eq!(numbers(&all), [1, 3, 7]);
        assert!(all.waits_for_others);
        let blocked = sendable([
            unsent(1, "a", Rejected),
            unsent(2, "a", OtherWorker),
            unsent(3, "a", ThisWorker),
        ]);
        assert!(blocked.ids.is_empty());
        assert!(
            !blocked.waits_for_others,
            "a rejected document is in front, so waiting does not help"
        );
    }

    proptest! {
        /// Several workers with their own documents: what may be sent is the front of its ordering
        /// key, and the very front may always be sent, so that no two workers wait for each other.
        #[test]
        fn workers_never_overtake_and_never_wait_in_circles(
            rows in prop::collection::vec((0..4u8, 0..3u8), 1..60)
        ) {
            let view = |worker: u8| sendable(rows.iter().enumerate().map(|(number, (key, holder))| {
                let holder = if *holder == worker { ThisWorker } else { OtherWorker };
                unsent(i32::try_from(number).unwrap(), &key.to_string(), holder)
            }));
            let views: Vec<_> = (0..3).map(|worker| numbers(&view(worker))).collect();
            for key in 0..4u8 {
                let ordering_key: Vec<_> = rows.iter().enumerate().filter(|(_, row)| row.0 == key).collect();
                let Some((_, (_, front_holder))) = ordering_key.first() else { continue };
                let going: Vec<_> = ordering_key.iter().map(|(number, (_, holder))| {
                    views[usize::from(*holder)].contains(&i32::try_from(*number).unwrap())
                }).collect();
                prop_assert!(going[0]);
                let front = going.iter().take_while(|goes| **goes).count();
                prop_assert!(!going[front..].contains(&true));
                prop_assert!(ordering_key[..front].iter().all(|(_, row)| row.1 == *front_holder));
            }
        }
    }
}
