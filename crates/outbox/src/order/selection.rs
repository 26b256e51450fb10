//! Selects what to claim from a page of pending documents.

use std::collections::HashSet;

use mongodb::bson::Bson;

use crate::order::OrderingKey;

/// A position in the order of the outbox: by `ts`, then by `_id`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Position {
    pub(crate) ts: Bson,
    pub(crate) id: Bson,
}

/// A pending document that no worker has claimed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) position: Position,
    pub(crate) ordering_key: Option<OrderingKey>,
    pub(crate) bytes: usize,
}

/// The documents to claim together.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Selection {
    pub(crate) candidates: Vec<Candidate>,
    /// The last document of the page that was considered.
    pub(crate) scanned_to: Option<Position>,
    /// All documents of the page were considered.
    pub(crate) scanned_all: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimit {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// Selects sendable documents from the front until the batch is full; at least one, however large.
pub(crate) fn select(
    page: Vec<Candidate>,
    sendable_ids: &HashSet<Bson>,
    limit: BatchLimit,
) -> Selection {
    let mut selection = Selection { scanned_all: true, ..Selection::default() };
    let mut bytes = 0;
    for candidate in page {
        if candidate.ordering_key.is_some() && !sendable_ids.contains(&candidate.position.id) {
            selection.scanned_to = Some(candidate.position);
            continue;
        }
        bytes += candidate.bytes;
        let is_full = selection.candidates.len() == limit.count
            || (bytes > limit.bytes && !selection.candidates.is_empty());
        if is_full {
            selection.scanned_all = false;
            break;
        }
        selection.scanned_to = Some(candidate.position.clone());
        selection.candidates.push(candidate);
    }
    selection
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(number: i32, key: Option<&str>, bytes: usize) -> Candidate {
        let ordering_key =
            key.map(|key| OrderingKey { topic: "t".to_owned(), key: key.to_owned() });
        let position = Position { ts: Bson::Int32(number), id: Bson::Int32(number) };
        Candidate { position, ordering_key, bytes }
    }

    fn numbers(selection: &Selection) -> Vec<i32> {
        selection.candidates.iter().filter_map(|one| one.position.id.as_i32()).collect()
    }

    #[test]
    fn selects_from_the_front_what_is_sendable_and_fits() {
        let page = vec![
            candidate(1, Some("a"), 10),
            candidate(2, None, 10),
            candidate(3, Some("b"), 10),
            candidate(4, None, 10),
        ];
        let sendable_ids = HashSet::from([Bson::Int32(3)]);
        let all = select(page.clone(), &sendable_ids, BatchLimit { count: 10, bytes: 1000 });
        assert_eq!((numbers(&all), all.scanned_all), (vec![2, 3, 4], true));
        for limit in [BatchLimit { count: 2, bytes: 1000 }, BatchLimit { count: 10, bytes: 20 }] {
            let two = select(page.clone(), &sendable_ids, limit);
            assert_eq!((numbers(&two), two.scanned_all), (vec![2, 3], false));
            assert_eq!(two.scanned_to.unwrap().id, Bson::Int32(3), "the rest is considered next");
        }
    }

    #[test]
    fn a_document_over_the_limit_is_selected_alone() {
        let page = vec![candidate(1, None, 5000), candidate(2, None, 1)];
        let one = select(page, &HashSet::new(), BatchLimit { count: 10, bytes: 100 });
        assert_eq!((numbers(&one), one.scanned_all), (vec![1], false));
    }

    #[test]
    fn selects_nothing_if_nothing_is_sendable() {
        let page = vec![candidate(1, Some("a"), 1), candidate(2, Some("a"), 1)];
        let none = select(page, &HashSet::new(), BatchLimit { count: 10, bytes: 100 });
        assert!(none.candidates.is_empty() && none.scanned_all);
        assert_eq!(none.scanned_to.unwrap().id, Bson::Int32(2));
    }
}
