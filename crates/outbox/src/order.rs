//! Order within a key: who may go without overtaking anybody.

use std::collections::HashSet;

use mongodb::bson::{Bson, Document};

/// Events of one topic and key, which keep their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lane {
    pub(crate) topic: String,
    pub(crate) key: String,
}

impl Lane {
    /// The lane of a document, if it has one. One whose topic or key is no text is no event, and
    /// holds up nobody.
    pub(crate) fn of(document: &Document) -> Option<Self> {
        let text = |name| document.get_str(name).ok().map(str::to_owned);
        Some(Self { topic: text("topic")?, key: text("key")? })
    }
}

/// A document of a lane that is neither sent nor skipped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unsent {
    pub(crate) id: Bson,
    pub(crate) lane: Lane,
    pub(crate) holder: Holder,
}

/// Who would publish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// We would.
    Us,
    /// Somebody else, and soon.
    Others,
    /// Nobody: it is an error until somebody does something about it.
    Nobody,
}

/// What order allows.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Allowed {
    /// Those of ours that overtake nobody.
    pub(crate) may_go: HashSet<Bson>,
    /// Whether one of ours only waits for somebody else.
    pub(crate) waits_for_others: bool,
}

/// Which of ours may go: in each lane those before the first that is not ours. `unsent` has all
/// lanes' documents that are not sent, in the order of the database, up to the last of ours.
pub(crate) fn allowed(unsent: impl IntoIterator<Item = Unsent>) -> Allowed {
    let mut closed: HashSet<Lane> = HashSet::new();
    let mut closed_by_others: HashSet<Lane> = HashSet::new();
    let mut allowed = Allowed::default();
    for Unsent { id, lane, holder } in unsent {
        let is_closed = closed.contains(&lane);
        match holder {
            Holder::Us if is_closed => {
                allowed.waits_for_others |= closed_by_others.contains(&lane);
            }
            Holder::Us => {
                allowed.may_go.insert(id);
            }
            Holder::Others if !is_closed => {
                closed_by_others.insert(lane.clone());
                closed.insert(lane);
            }
            Holder::Others | Holder::Nobody => {
                closed.insert(lane);
            }
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Holder::{Nobody, Others, Us};
    use super::*;

    fn unsent(number: i32, key: &str, holder: Holder) -> Unsent {
        let lane = Lane { topic: "t".to_owned(), key: key.to_owned() };
        Unsent { id: Bson::Int32(number), lane, holder }
    }

    fn numbers(allowed: &Allowed) -> Vec<i32> {
        let mut all: Vec<_> = allowed.may_go.iter().filter_map(Bson::as_i32).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn nobody_overtakes_what_others_hold_or_nobody_sends() {
        let all = allowed([
            unsent(1, "a", Us),
            unsent(2, "b", Others),
            unsent(3, "a", Us),
            unsent(4, "b", Us),
            unsent(5, "a", Nobody),
            unsent(6, "a", Us),
            unsent(7, "c", Us),
        ]);
        assert_eq!(numbers(&all), [1, 3, 7]);
        assert!(all.waits_for_others);
        let blocked = allowed([unsent(1, "a", Nobody), unsent(2, "a", Others), unsent(3, "a", Us)]);
        assert!(blocked.may_go.is_empty());
        assert!(!blocked.waits_for_others, "an error is in front, and waiting does not help");
    }

    proptest! {
        /// Several workers, each with what it holds: whoever may go is the front of its lane, and
        /// the very front may always go, so that nobody waits for each other.
        #[test]
        fn workers_never_overtake_and_never_wait_in_circles(
            rows in prop::collection::vec((0..4u8, 0..3u8), 1..60)
        ) {
            let view = |worker: u8| allowed(rows.iter().enumerate().map(|(number, (key, holder))| {
                let holder = if *holder == worker { Us } else { Others };
                unsent(i32::try_from(number).unwrap(), &key.to_string(), holder)
            }));
            let views: Vec<_> = (0..3).map(|worker| numbers(&view(worker))).collect();
            for key in 0..4u8 {
                let lane: Vec<_> = rows.iter().enumerate().filter(|(_, row)| row.0 == key).collect();
                let Some((_, (_, front_holder))) = lane.first() else { continue };
                let going: Vec<_> = lane.iter().map(|(number, (_, holder))| {
                    views[usize::from(*holder)].contains(&i32::try_from(*number).unwrap())
                }).collect();
                prop_assert!(going[0]);
                let front = going.iter().take_while(|goes| **goes).count();
                prop_assert!(!going[front..].contains(&true));
                prop_assert!(lane[..front].iter().all(|(_, row)| row.1 == *front_holder));
            }
        }
    }
}
