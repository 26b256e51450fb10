//! What to claim of a page of documents that wait.

use std::collections::HashSet;

use mongodb::bson::Bson;

use crate::order::Lane;

/// A place in the order of the outbox: by `ts`, then by `_id`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Position {
    pub(crate) ts: Bson,
    pub(crate) id: Bson,
}

/// A document that waits and that nobody holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) position: Position,
    pub(crate) lane: Option<Lane>,
    pub(crate) bytes: usize,
}

/// What is to be claimed together.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Choice {
    pub(crate) candidates: Vec<Candidate>,
    /// The last that was looked at.
    pub(crate) looked_at: Option<Position>,
    /// Whether all were.
    pub(crate) has_seen_all: bool,
}

/// How much one batch may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimit {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// Takes those that may go, from the front, until the batch is full; one at least, however large.
pub(crate) fn choose(page: Vec<Candidate>, may_go: &HashSet<Bson>, limit: BatchLimit) -> Choice {
    let mut choice = Choice { has_seen_all: true, ..Choice::default() };
    let mut bytes = 0;
    for candidate in page {
        if candidate.lane.is_some() && !may_go.contains(&candidate.position.id) {
            choice.looked_at = Some(candidate.position);
            continue;
        }
        bytes += candidate.bytes;
        let is_full = choice.candidates.len() == limit.count
            || (bytes > limit.bytes && !choice.candidates.is_empty());
        if is_full {
            choice.has_seen_all = false;
            break;
        }
        choice.looked_at = Some(candidate.position.clone());
        choice.candidates.push(candidate);
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(number: i32, key: Option<&str>, bytes: usize) -> Candidate {
        let lane = key.map(|key| Lane { topic: "t".to_owned(), key: key.to_owned() });
        let position = Position { ts: Bson::Int32(number), id: Bson::Int32(number) };
        Candidate { position, lane, bytes }
    }

    fn numbers(choice: &Choice) -> Vec<i32> {
        choice.candidates.iter().filter_map(|one| one.position.id.as_i32()).collect()
    }

    #[test]
    fn takes_from_the_front_what_may_go_and_fits() {
        let page = vec![
            candidate(1, Some("a"), 10),
            candidate(2, None, 10),
            candidate(3, Some("b"), 10),
            candidate(4, None, 10),
        ];
        let may_go = HashSet::from([Bson::Int32(3)]);
        let all = choose(page.clone(), &may_go, BatchLimit { count: 10, bytes: 1000 });
        assert_eq!((numbers(&all), all.has_seen_all), (vec![2, 3, 4], true));
        for limit in [BatchLimit { count: 2, bytes: 1000 }, BatchLimit { count: 10, bytes: 20 }] {
            let two = choose(page.clone(), &may_go, limit);
            assert_eq!((numbers(&two), two.has_seen_all), (vec![2, 3], false));
            assert_eq!(two.looked_at.unwrap().id, Bson::Int32(3), "the rest is looked at next");
        }
    }

    #[test]
    fn one_that_is_too_large_goes_alone() {
        let page = vec![candidate(1, None, 5000), candidate(2, None, 1)];
        let one = choose(page, &HashSet::new(), BatchLimit { count: 10, bytes: 100 });
        assert_eq!((numbers(&one), one.has_seen_all), (vec![1], false));
    }

    #[test]
    fn nothing_that_may_go_is_nothing() {
        let page = vec![candidate(1, Some("a"), 1), candidate(2, Some("a"), 1)];
        let none = choose(page, &HashSet::new(), BatchLimit { count: 10, bytes: 100 });
        assert!(none.candidates.is_empty() && none.has_seen_all);
        assert_eq!(none.looked_at.unwrap().id, Bson::Int32(2));
    }
}
