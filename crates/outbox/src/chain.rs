//! The documents of one topic in one batch, frame by frame.
//!
//! A frame is stored as a whole or not at all, and the next one goes when it is answered: so nothing
//! overtakes. A frame that is refused goes again in halves, until it is known which document it is.

use std::collections::VecDeque;

use prombus_client::{Outgoing, Topic};
use prombus_proto::frame::Published;

use crate::letter::{Letter, Reason};
use crate::mark::{Fate, Mark};

/// A frame is not filled further than this, so that it passes the server's usual limit.
const FULL_FRAME_BYTES: usize = 512 << 10;

/// What is left to publish to one topic.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) topic: Topic,
    waiting: VecDeque<Letter>,
    /// How many go into one frame at most.
    most: usize,
    /// And how many at most when all goes well.
    ceiling: usize,
    /// How many were in the last frame that was asked for.
    on_their_way: usize,
    marks: Vec<Mark>,
}

impl Chain {
    /// Letters that are all for `topic`, in their order.
    pub(crate) fn new(topic: Topic, letters: VecDeque<Letter>, most: usize) -> Self {
        let most = most.max(1);
        Self { topic, waiting: letters, most, ceiling: most, on_their_way: 0, marks: Vec::new() }
    }

    /// The events of the next frame.
    pub(crate) fn next_frame(&mut self) -> Option<Vec<Outgoing>> {
        let mut bytes = 0;
        let fits = |(place, letter): &(usize, &Letter)| {
            bytes += letter.bytes;
            *place == 0 || bytes <= FULL_FRAME_BYTES
        };
        let front = self.waiting.iter().take(self.most).enumerate().take_while(fits);
        let events: Vec<_> = front.map(|(_, letter)| letter.event.clone()).collect();
        self.on_their_way = events.len();
        (!events.is_empty()).then_some(events)
    }

    /// The frame is stored.
    pub(crate) fn stored(&mut self, results: &[Published]) {
        for (letter, result) in self.waiting.drain(..self.on_their_way).zip(results) {
            let fate = Fate::Sent { seq: result.seq.0, is_duplicate: result.duplicate };
            self.marks.push(Mark { id: letter.id, fate });
        }
        self.on_their_way = 0;
        self.most = self.most.saturating_mul(2).min(self.ceiling);
    }

    /// The frame is not stored, and one of so many may be.
    pub(crate) fn takes_at_most(&mut self, count: usize) {
        self.on_their_way = 0;
        self.most = count.max(1);
        self.ceiling = self.most;
    }

    /// The frame is not stored, and never will be as it is.
    pub(crate) fn refused(&mut self, reason: Reason) {
        let count = std::mem::take(&mut self.on_their_way);
        if count > 1 {
            self.most = count / 2;
            return;
        }
        let Some(refused) = self.waiting.pop_front() else { return };
        self.marks.push(Mark { id: refused.id, fate: Fate::Error(reason) });
        // Whoever is behind it may not overtake it.
        if let Some(lane) = refused.lane {
            let (behind, others) = std::mem::take(&mut self.waiting)
                .into_iter()
                .partition::<VecDeque<_>, _>(|letter| letter.lane.as_ref() == Some(&lane));
            self.waiting = others;
            self.marks.extend(behind.into_iter().map(|letter| Mark::given_back(letter.id, false)));
        }
    }

    /// What became of each. What is not answered is given back.
    pub(crate) fn into_marks(self) -> Vec<Mark> {
        let Self { waiting, on_their_way, mut marks, .. } = self;
        let given_back = waiting.into_iter().enumerate();
        marks.extend(
            given_back.map(|(place, letter)| Mark::given_back(letter.id, place < on_their_way)),
        );
        marks
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Bson, doc};
    use prombus_client::{EventId, Seq};
    use prombus_proto::ErrorCode;
    use proptest::prelude::*;

    use super::*;

    fn letter(number: usize, key: Option<u8>, size: usize) -> Letter {
        let mut document = doc! {
            "_id": number.to_string(), "topic": "t", "ts": 1, "payload": "x".repeat(size),
        };
        if let Some(key) = key {
            document.insert("key", key.to_string());
        }
        Letter::read(&document).unwrap()
    }

    fn results(from: u64, count: usize) -> Vec<Published> {
        let id = EventId::new("x").unwrap();
        (0..count as u64)
            .map(|n| Published { id: id.clone(), seq: Seq(from + n), duplicate: false })
            .collect()
    }

    fn number(id: &Bson) -> usize {
        id.as_str().unwrap().parse().unwrap()
    }

    fn reason() -> Reason {
        Reason::new(ErrorCode::SchemaViolation, "not so")
    }

    #[test]
    fn frames_are_bounded_in_count_and_bytes() {
        let topic = Topic::new("t").unwrap();
        let small: VecDeque<_> = (0..10).map(|n| letter(n, None, 1)).collect();
        assert_eq!(Chain::new(topic.clone(), small, 4).next_frame().unwrap().len(), 4);
        let large = [100, 400 << 10, 200 << 10, 1].map(|size| letter(size, None, size));
        let mut chain = Chain::new(topic.clone(), large.into(), 100);
        assert_eq!(chain.next_frame().unwrap().len(), 2);
        let huge = [letter(0, None, 2 << 20), letter(1, None, 1)];
        assert_eq!(Chain::new(topic, huge.into(), 100).next_frame().unwrap().len(), 1);
    }

    #[test]
    fn what_is_not_answered_is_given_back_and_counts_as_tried_if_it_was() {
        let letters: VecDeque<_> = (0..3).map(|n| letter(n, Some(1), 1)).collect();
        let mut chain = Chain::new(Topic::new("t").unwrap(), letters, 2);
        chain.next_frame().unwrap();
        let tried: Vec<_> = chain.into_marks().into_iter().map(|mark| mark.fate).collect();
        let given_back = |was_tried| Fate::GivenBack { was_tried };
        assert_eq!(tried, [given_back(true), given_back(true), given_back(false)]);
    }

    proptest! {
        /// Whatever is bad in it: each document has one fate, good ones are stored in order, bad
        /// ones are errors, and of a key nothing goes behind an error.
        #[test]
        fn the_bad_ones_are_found_and_nobody_overtakes_them(
            rows in prop::collection::vec((prop::option::of(0..4u8), prop::bool::weighted(0.15)), 1..80),
            most in 1..100usize,
        ) {
            let letters = rows.iter().enumerate().map(|(n, (key, _))| letter(n, *key, 1)).collect();
            let mut chain = Chain::new(Topic::new("t").unwrap(), letters, most);
            let (mut seq, mut stored) = (1, Vec::new());
            while chain.next_frame().is_some() {
                let count = chain.on_their_way;
                let frame: Vec<_> = chain.waiting.iter().take(count).map(|one| number(&one.id)).collect();
                if frame.iter().any(|n| rows[*n].1) {
                    chain.refused(reason());
                } else {
                    stored.extend(frame);
                    chain.stored(&results(seq, count));
                    seq += count as u64;
                }
            }
            prop_assert!(stored.is_sorted());
            let marks = chain.into_marks();
            let mut marked: Vec<_> = marks.iter().map(|mark| number(&mark.id)).collect();
            marked.sort_unstable();
            prop_assert_eq!(marked, (0..rows.len()).collect::<Vec<_>>());
            for mark in &marks {
                let n = number(&mark.id);
                let (key, is_bad) = rows[n];
                let is_blocked = key.is_some() && rows[..n].iter().any(|row| row.0 == key && row.1);
                let expected = match (is_blocked, is_bad) {
                    (true, _) => Fate::GivenBack { was_tried: false },
                    (false, true) => Fate::Error(reason()),
                    (false, false) => {
                        let place = stored.iter().position(|one| *one == n).unwrap();
                        Fate::Sent { seq: place as u64 + 1, is_duplicate: false }
                    }
                };
                prop_assert_eq!(&mark.fate, &expected);
            }
        }
    }
}
