//! Publishing a batch: its topics side by side, each in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use mongodb::bson::{Bson, Document};
use prombus_client::{Client, Error};
use prombus_proto::ErrorCode;
use prombus_proto::limits::MAX_FRAME_EVENTS;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::chain::Chain;
use crate::letter::{Letter, Reason};
use crate::mark::{Fate, Mark};

/// Where events go, and what it was learned to take.
#[derive(Debug)]
pub(crate) struct Bus {
    client: Client,
    /// How many events at once pass the limits of rate.
    most_at_once: AtomicUsize,
}

/// Whether frames may still begin.
#[derive(Debug)]
pub(crate) struct Gate {
    stop: watch::Receiver<bool>,
    lease_ends: Mutex<Instant>,
}

/// What came of a batch.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) marks: Vec<Mark>,
    /// What kept it from being published whole.
    pub(crate) trouble: Option<Error>,
}

/// What a refusal of a frame means.
enum Verdict {
    /// The frame will never be taken as it is: one of its documents is the reason.
    Documents(Reason),
    /// It is more at once than a limit of rate ever allows.
    TooMuchAtOnce,
    /// No document is to blame.
    Trouble(Error),
}

impl Gate {
    pub(crate) const fn new(stop: watch::Receiver<bool>, lease_ends: Instant) -> Self {
        Self { stop, lease_ends: Mutex::new(lease_ends) }
    }

    /// The lease was made longer.
    pub(crate) fn renewed(&self, lease_ends: Instant) {
        *self.lease_ends.lock().unwrap_or_else(PoisonError::into_inner) = lease_ends;
    }

    /// Nothing begins after the lease, by a clock that nobody sets. Order and identity do not hang
    /// on it: it keeps a worker that was held up from sending what others sent long ago.
    fn is_open(&self) -> bool {
        let lease_ends = *self.lease_ends.lock().unwrap_or_else(PoisonError::into_inner);
        !*self.stop.borrow() && Instant::now() < lease_ends
    }
}

impl Bus {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client, most_at_once: AtomicUsize::new(MAX_FRAME_EVENTS) }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Publishes what can be published of `documents`, which are in order.
    pub(crate) async fn publish(&self, documents: Vec<Document>, gate: &Gate) -> Outcome {
        let (letters, mut marks) = read_all(documents);
        let mut by_topic: BTreeMap<_, VecDeque<Letter>> = BTreeMap::new();
        for letter in letters {
            by_topic.entry(letter.topic.as_str().to_owned()).or_default().push_back(letter);
        }
        let chains = by_topic.into_values().filter_map(|letters| {
            let topic = letters.front()?.topic.clone();
            Some(self.send(Chain::new(topic, letters, self.most()), gate))
        });
        let mut trouble = None;
        for (sent, why) in join_all(chains).await {
            marks.extend(sent);
            trouble = trouble.or(why);
        }
        Outcome { marks, trouble }
    }

    async fn send(&self, mut chain: Chain, gate: &Gate) -> (Vec<Mark>, Option<Error>) {
        while gate.is_open() {
            let Some(frame) = chain.next_frame() else { break };
            let count = frame.len();
            match self.client.publish_together(&chain.topic, frame).await {
                Ok(results) => chain.stored(&results),
                Err(error) => match verdict(error, count) {
                    Verdict::Documents(reason) => chain.refused(reason),
                    Verdict::TooMuchAtOnce => {
                        self.most_at_once.fetch_min(count / 2, Ordering::Relaxed);
                        chain.takes_at_most(count / 2);
                    }
                    Verdict::Trouble(error) => return (chain.into_marks(), Some(error)),
                },
            }
        }
        (chain.into_marks(), None)
    }

    fn most(&self) -> usize {
        self.most_at_once.load(Ordering::Relaxed).max(1)
    }
}

/// The events that documents are. Whoever is none is marked, and holds up its key.
fn read_all(documents: Vec<Document>) -> (Vec<Letter>, Vec<Mark>) {
    let (mut letters, mut marks) = (Vec::new(), Vec::new());
    let mut closed = std::collections::HashSet::new();
    for document in documents {
        let id = document.get("_id").cloned().unwrap_or(Bson::Null);
        let lane = crate::order::Lane::of(&document);
        if lane.as_ref().is_some_and(|lane| closed.contains(lane)) {
            marks.push(Mark::given_back(id, false));
            continue;
        }
        match Letter::read(&document) {
            Ok(letter) => letters.push(letter),
            Err(reason) => {
                marks.push(Mark { id, fate: Fate::Error(reason) });
                closed.extend(lane);
            }
        }
    }
    (letters, marks)
}

fn verdict(error: Error, count: usize) -> Verdict {
    let Error::Refused(refusal) = error else { return Verdict::Trouble(error) };
    match refusal.code {
        ErrorCode::RateLimited if refusal.retry_after.is_none() && count > 1 => {
            Verdict::TooMuchAtOnce
        }
        // Who we are is wrong, and no document is to blame for that.
        ErrorCode::Unauthorized | ErrorCode::BadToken => Verdict::Trouble(refusal.into()),
        code if code.is_retryable() => Verdict::Trouble(refusal.into()),
        code => Verdict::Documents(Reason::new(code, refusal.msg)),
    }
}

/// Whether trouble with the bus ends a worker: nothing gets better by itself.
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
    fn a_document_that_is_no_event_holds_up_its_key_alone() {
        let document = |id: &str, key: &str, payload: f64| {
            doc! { "_id": id, "topic": "t", "key": key, "ts": 1, "payload": payload }
        };
        let documents = vec![
            document("1", "a", 1.0),
            document("2", "a", f64::NAN),
            document("3", "b", 1.0),
            document("4", "a", 1.0),
        ];
        let (letters, marks) = read_all(documents);
        let ids: Vec<_> = letters.iter().filter_map(|letter| letter.id.as_str()).collect();
        assert_eq!(ids, ["1", "3"]);
        assert!(matches!(&marks[0].fate, Fate::Error(reason) if reason.code == "bad_json"));
        assert_eq!(marks[1], Mark::given_back("4".into(), false));
    }

    #[test]
    fn nobody_is_to_blame_for_what_passes_or_for_our_token() {
        let refused = |code, retry_after| {
            Error::Refused(prombus_client::Refusal { code, msg: "no".to_owned(), retry_after })
        };
        for code in ErrorCode::ALL {
            let is_ours = matches!(code, ErrorCode::Unauthorized | ErrorCode::BadToken);
            let blames = matches!(verdict(refused(*code, None), 1), Verdict::Documents(_));
            assert_eq!(blames, !code.is_retryable() && !is_ours, "{code}");
            assert_eq!(is_final(&refused(*code, None)), is_ours);
        }
        let limited = |retry_after| verdict(refused(ErrorCode::RateLimited, retry_after), 2);
        assert!(matches!(limited(None), Verdict::TooMuchAtOnce));
        assert!(matches!(limited(Some(std::time::Duration::ZERO)), Verdict::Trouble(_)));
        assert!(matches!(verdict(Error::TimedOut, 1), Verdict::Trouble(Error::TimedOut)));
        assert!(!is_final(&Error::TimedOut) && is_final(&Error::Ended));
    }
}
