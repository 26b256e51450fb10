//! Publishes a batch: its topics concurrently, each in order.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use mongodb::bson::{Bson, Document};
use parking_lot::Mutex;
use prombus_client::{Client, Error};
use prombus_proto::ErrorCode;
use prombus_proto::limits::MAX_FRAME_EVENTS;
use tokio::sync::watch;
use tokio::time::Instant;

use super::topic_queue::TopicQueue;
use crate::document::event::{OutboxEvent, Rejection};
use crate::document::outcome::{DocumentOutcome, Outcome};
use crate::order::OrderingKey;

#[derive(Debug)]
pub(crate) struct Publisher {
    client: Client,
    /// How many events at once pass the rate limits of the bus, as far as is known.
    frame_limit: AtomicUsize,
}

/// Decides whether further frames may be sent.
#[derive(Debug)]
pub(crate) struct SendPermit {
    stop: watch::Receiver<bool>,
    lease_ends: Mutex<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct PublishedBatch {
    pub(crate) outcomes: Vec<DocumentOutcome>,
    /// The first error that kept documents from being published.
    pub(crate) failure: Option<Error>,
}

/// What a failed frame means.
enum Failure {
    /// The bus will never accept the frame, because of one of its documents.
    Document(Rejection),
    /// The frame has more events than a rate limit ever allows.
    TooManyAtOnce,
    /// No document is to blame.
    Bus(Error),
}

impl SendPermit {
    pub(crate) const fn new(stop: watch::Receiver<bool>, lease_ends: Instant) -> Self {
        Self { stop, lease_ends: Mutex::new(lease_ends) }
    }

    pub(crate) fn extend(&self, lease_ends: Instant) {
        *self.lease_ends.lock() = lease_ends;
    }

    /// Returns `false` once the worker is stopped or the lease has expired by the monotonic clock.
    /// Order and deduplication do not depend on it: it keeps a worker that was suspended from
    /// sending what others sent long ago.
    fn is_valid(&self) -> bool {
        !*self.stop.borrow() && Instant::now() < *self.lease_ends.lock()
    }
}

impl Publisher {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client, frame_limit: AtomicUsize::new(MAX_FRAME_EVENTS) }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Publishes `documents`, which are in order, as far as possible.
    pub(crate) async fn publish(
        &self,
        documents: Vec<Document>,
        permit: &SendPermit,
    ) -> PublishedBatch {
        let (events, mut outcomes) = parse_all(documents);
        let mut by_topic: BTreeMap<_, VecDeque<OutboxEvent>> = BTreeMap::new();
        for event in events {
            by_topic.entry(event.topic.as_str().to_owned()).or_default().push_back(event);
        }
        let frame_limit = self.frame_limit.load(Ordering::Relaxed).max(1);
        let queues = by_topic.into_values().filter_map(|events| {
            let topic = events.front()?.topic.clone();
            Some(self.send(TopicQueue::new(topic, events, frame_limit), permit))
        });
        let mut failure = None;
        for (of_topic, error) in join_all(queues).await {
            outcomes.extend(of_topic);
            failure = failure.or(error);
        }
        PublishedBatch { outcomes, failure }
    }

    async fn send(
        &self,
        mut queue: TopicQueue,
        permit: &SendPermit,
    ) -> (Vec<DocumentOutcome>, Option<Error>) {
        while permit.is_valid() {
            let Some(frame) = queue.next_frame() else { break };
            let count = frame.len();
            match self.client.publish_together(&queue.topic, frame).await {
                Ok(results) => queue.stored(&results),
                Err(error) => match classify(error, count) {
                    Failure::Document(rejection) => queue.rejected(rejection),
                    Failure::TooManyAtOnce => {
                        self.frame_limit.fetch_min(count / 2, Ordering::Relaxed);
                        queue.limit_frames_to(count / 2);
                    }
                    Failure::Bus(error) => return (queue.into_outcomes(), Some(error)),
                },
            }
        }
        (queue.into_outcomes(), None)
    }
}

/// Parses documents as events. A document that is not an event is rejected and blocks its key.
fn parse_all(documents: Vec<Document>) -> (Vec<OutboxEvent>, Vec<DocumentOutcome>) {
    let (mut events, mut outcomes) = (Vec::new(), Vec::new());
    let mut blocked = HashSet::new();
    for document in documents {
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let ordering_key = OrderingKey::of(&document);
        if ordering_key.as_ref().is_some_and(|key| blocked.contains(key)) {
            outcomes.push(DocumentOutcome::released(id, false));
            continue;
        }
        match OutboxEvent::parse(&document) {
            Ok(event) => events.push(event),
            Err(rejection) => {
                outcomes.push(DocumentOutcome { id, outcome: Outcome::Rejected(rejection) });
                blocked.extend(ordering_key);
            }
        }
    }
    (events, outcomes)
}

fn classify(error: Error, count: usize) -> Failure {
    let Error::Refused(refusal) = error else { return Failure::Bus(error) };
    match refusal.code {
        ErrorCode::RateLimited if refusal.retry_after.is_none() && count > 1 => {
            Failure::TooManyAtOnce
        }
        // The worker's credentials are wrong, which is not the fault of a document.
        ErrorCode::Unauthorized | ErrorCode::BadToken => Failure::Bus(refusal.into()),
        code if code.is_retryable() => Failure::Bus(refusal.into()),
        code => Failure::Document(Rejection::new(code, refusal.msg)),
    }
}

/// Returns `true` if retrying cannot help, so that the worker has to end.
pub(crate) fn is_final(error: &Error) -> bool {
    match error {
        Error::Refused(refusal) => {
            matches!(refusal.code, ErrorCode::Unauthorized | ErrorCode::BadToken)
        }
        Error::Closed { .. } | Error::Ended | Error::BadAddress(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    #[test]
    fn an_invalid_document_blocks_only_its_key() {
        let document = |id: &str, key: &str, payload: f64| {
            doc! { "_id": id, "topic": "t", "key": key, "ts": 1, "payload": payload }
        };
        let documents = vec![
            document("1", "a", 1.0),
            document("2", "a", f64::NAN),
            document("3", "b", 1.0),
            document("4", "a", 1.0),
        ];
        let (events, outcomes) = parse_all(documents);
        let ids: Vec<_> = events.iter().filter_map(|event| event.id.as_str()).collect();
        assert_eq!(ids, ["1", "3"]);
        assert!(
            matches!(&outcomes[0].outcome, Outcome::Rejected(rejection) if rejection.code == "bad_json")
        );
        assert_eq!(outcomes[1], DocumentOutcome::released("4".into(), false));
    }

    #[test]
    fn documents_are_not_blamed_for_transient_errors_or_a_bad_token() {
        let refused = |code, retry_after| {
            Error::Refused(prombus_client::Refusal { code, msg: "no".to_owned(), retry_after })
        };
        for code in ErrorCode::ALL {
            let is_ours = matches!(code, ErrorCode::Unauthorized | ErrorCode::BadToken);
            let blames = matches!(classify(refused(*code, None), 1), Failure::Document(_));
            assert_eq!(blames, !code.is_retryable() && !is_ours, "{code}");
            assert_eq!(is_final(&refused(*code, None)), is_ours);
        }
        let limited = |retry_after| classify(refused(ErrorCode::RateLimited, retry_after), 2);
        assert!(matches!(limited(None), Failure::TooManyAtOnce));
        assert!(matches!(limited(Some(std::time::Duration::ZERO)), Failure::Bus(_)));
        assert!(matches!(classify(Error::TimedOut, 1), Failure::Bus(Error::TimedOut)));
        assert!(!is_final(&Error::TimedOut) && is_final(&Error::Ended));
    }
}
