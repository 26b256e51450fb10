//! The events of one topic in one batch, frame by frame.
//!
//! The bus stores a frame as a whole or not at all, and the next frame is sent once the previous
//! one is answered, so no event overtakes another. A rejected frame is split in halves until the
//! rejected document is found.

use std::collections::VecDeque;

use prombus_client::{Outgoing, Topic};
use prombus_proto::frame::Published;

use crate::document::event::{OutboxEvent, Rejection};
use crate::document::outcome::{DocumentOutcome, Outcome};

/// Below the server's default frame limit.
const TARGET_FRAME_BYTES: usize = 512 << 10;

#[derive(Debug)]
pub(crate) struct TopicQueue {
    pub(crate) topic: Topic,
    waiting: VecDeque<OutboxEvent>,
    /// The maximum number of events in the next frame.
    frame_limit: usize,
    /// What the limit grows back to after successes.
    max_frame_limit: usize,
    /// How many events the frame in flight has.
    in_flight: usize,
    outcomes: Vec<DocumentOutcome>,
}

impl TopicQueue {
    /// Queues `events`, which are all for `topic` and in order.
    pub(crate) fn new(topic: Topic, events: VecDeque<OutboxEvent>, frame_limit: usize) -> Self {
        let frame_limit = frame_limit.max(1);
        Self {
            topic,
            waiting: events,
            frame_limit,
            max_frame_limit: frame_limit,
            in_flight: 0,
            outcomes: Vec::new(),
        }
    }

    /// Returns the events of the next frame, or `None` if the queue is empty.
    pub(crate) fn next_frame(&mut self) -> Option<Vec<Outgoing>> {
        let mut bytes = 0;
        let fits = |(index, event): &(usize, &OutboxEvent)| {
            bytes += event.bytes;
            *index == 0 || bytes <= TARGET_FRAME_BYTES
        };
        let front = self.waiting.iter().take(self.frame_limit).enumerate().take_while(fits);
        let events: Vec<_> = front.map(|(_, event)| event.event.clone()).collect();
        self.in_flight = events.len();
        (!events.is_empty()).then_some(events)
    }

    /// The bus stored the frame.
    pub(crate) fn stored(&mut self, results: &[Published]) {
        for (event, result) in self.waiting.drain(..self.in_flight).zip(results) {
            let outcome = Outcome::Sent { seq: result.seq.0, is_duplicate: result.duplicate };
            self.outcomes.push(DocumentOutcome { id: event.id, outcome });
        }
        self.in_flight = 0;
        self.frame_limit = self.frame_limit.saturating_mul(2).min(self.max_frame_limit);
    }

    /// The frame has more events than a rate limit ever allows; `count` may pass.
    pub(crate) fn limit_frames_to(&mut self, count: usize) {
        self.in_flight = 0;
        self.frame_limit = count.max(1);
        self.max_frame_limit = self.frame_limit;
    }

    /// The bus will never accept the frame as it is.
    pub(crate) fn rejected(&mut self, rejection: Rejection) {
        let count = std::mem::take(&mut self.in_flight);
        if count > 1 {
            self.frame_limit = count / 2;
            return;
        }
        let Some(rejected) = self.waiting.pop_front() else { return };
        let outcome = Outcome::Rejected(rejection);
        self.outcomes.push(DocumentOutcome { id: rejected.id, outcome });
        // Later events of the same key must not overtake it.
        if let Some(ordering_key) = rejected.ordering_key {
            let (blocked, others) =
                std::mem::take(&mut self.waiting).into_iter().partition::<VecDeque<_>, _>(
                    |event| event.ordering_key.as_ref() == Some(&ordering_key),
                );
            self.waiting = others;
            let blocked = blocked.into_iter();
            self.outcomes.extend(blocked.map(|event| DocumentOutcome::released(event.id, false)));
        }
    }

    /// Returns what became of each document. Those without an answer are released.
    pub(crate) fn into_outcomes(self) -> Vec<DocumentOutcome> {
        let Self { waiting, in_flight, mut outcomes, .. } = self;
        let released = waiting.into_iter().enumerate();
        outcomes.extend(
            released.map(|(index, event)| DocumentOutcome::released(event.id, index < in_flight)),
        );
        outcomes
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Bson, doc};
    use prombus_client::{EventId, Seq};
    use prombus_proto::ErrorCode;
    use proptest::prelude::*;

    use super::*;

    fn event(number: usize, key: Option<u8>, size: usize) -> OutboxEvent {
        let mut document = doc! {
            "_id": number.to_string(), "topic": "t", "ts": 1, "payload": "x".repeat(size),
        };
        if let Some(key) = key {
            document.insert("key", key.to_string());
        }
        OutboxEvent::parse(&document).unwrap()
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

    fn rejection() -> Rejection {
        Rejection::new(ErrorCode::SchemaViolation, "invalid")
    }

    #[test]
    fn frames_are_bounded_in_count_and_bytes() {
        let topic = Topic::new("t").unwrap();
        let small: VecDeque<_> = (0..10).map(|n| event(n, None, 1)).collect();
        assert_eq!(TopicQueue::new(topic.clone(), small, 4).next_frame().unwrap().len(), 4);
        let large = [100, 400 << 10, 200 << 10, 1].map(|size| event(size, None, size));
        let mut queue = TopicQueue::new(topic.clone(), large.into(), 100);
        assert_eq!(queue.next_frame().unwrap().len(), 2);
        let huge = [event(0, None, 2 << 20), event(1, None, 1)];
        assert_eq!(TopicQueue::new(topic, huge.into(), 100).next_frame().unwrap().len(), 1);
    }

    #[test]
    fn unanswered_documents_are_released_and_count_as_tried_if_they_were_sent() {
        let events: VecDeque<_> = (0..3).map(|n| event(n, Some(1), 1)).collect();
        let mut queue = TopicQueue::new(Topic::new("t").unwrap(), events, 2);
        queue.next_frame().unwrap();
        let tried: Vec<_> =
            queue.into_outcomes().into_iter().map(|outcome| outcome.outcome).collect();
        let released = |was_tried| Outcome::Released { was_tried };
        assert_eq!(tried, [released(true), released(true), released(false)]);
    }

    proptest! {
        /// Whatever documents are bad: each document has one outcome, good ones are stored in
        /// order, bad ones are rejected, and no document of a key is sent after a rejected one.
        #[test]
        fn bad_documents_are_found_and_never_overtaken(
            rows in prop::collection::vec((prop::option::of(0..4u8), prop::bool::weighted(0.15)), 1..80),
            frame_limit in 1..100usize,
        ) {
            let events = rows.iter().enumerate().map(|(n, (key, _))| event(n, *key, 1)).collect();
            let mut queue = TopicQueue::new(Topic::new("t").unwrap(), events, frame_limit);
            let (mut seq, mut stored) = (1, Vec::new());
            while queue.next_frame().is_some() {
                let count = queue.in_flight;
                let frame: Vec<_> = queue.waiting.iter().take(count).map(|one| number(&one.id)).collect();
                if frame.iter().any(|n| rows[*n].1) {
                    queue.rejected(rejection());
                } else {
                    stored.extend(frame);
                    queue.stored(&results(seq, count));
                    seq += count as u64;
                }
            }
            prop_assert!(stored.is_sorted());
            let outcomes = queue.into_outcomes();
            let mut settled: Vec<_> = outcomes.iter().map(|outcome| number(&outcome.id)).collect();
            settled.sort_unstable();
            prop_assert_eq!(settled, (0..rows.len()).collect::<Vec<_>>());
            for outcome in &outcomes {
                let n = number(&outcome.id);
                let (key, is_bad) = rows[n];
                let is_blocked = key.is_some() && rows[..n].iter().any(|row| row.0 == key && row.1);
                let expected = match (is_blocked, is_bad) {
                    (true, _) => Outcome::Released { was_tried: false },
                    (false, true) => Outcome::Rejected(rejection()),
                    (false, false) => {
                        let index = stored.iter().position(|one| *one == n).unwrap();
                        Outcome::Sent { seq: index as u64 + 1, is_duplicate: false }
                    }
                };
                prop_assert_eq!(&outcome.outcome, &expected);
            }
        }
    }
}
