//! Submissions that are merged into one batch of the engine, and their results.

use prombus_engine::{Batch, CommitError, Committed, Durability, Engine, StateOp};
use prombus_proto::{EncodedEvent, Topic};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::topic_runs::TopicRuns;
use super::{CommitReceipt, CommitResult, PublishTimes, QueuedSubmission, Submission};
use crate::limits::{Charges, TopicPermit};
use crate::metrics::CommitMeter;
use crate::spans::PublishSpans;
use crate::time::now;
use crate::topics::Topics;

/// The submissions of one batch.
pub(super) struct MergedSubmissions {
    parts: Vec<Part>,
    runs: TopicRuns,
    /// Topics that the batch deletes. It then has a single part.
    deleted: Vec<Topic>,
    /// Copies of the events, for followers and for a retry.
    events: Option<Vec<EncodedEvent>>,
    /// Copies of the state changes, for a retry.
    state: Vec<StateOp>,
}

/// The share of one submission in the batch.
struct Part {
    events: usize,
    publish_times: PublishTimes,
    spans: PublishSpans,
    state: usize,
    durability: Durability,
    reply: oneshot::Sender<CommitResult>,
    charges: Charges,
    /// Held until the topics are counted, or not created.
    _permits: Vec<TopicPermit>,
    _room: OwnedSemaphorePermit,
}

impl MergedSubmissions {
    /// Merges all of `queued` into one batch.
    pub(super) fn merge(queued: Vec<QueuedSubmission>, topics: &Topics) -> (Batch, Self) {
        let mut batch = Batch::of_state(Vec::new(), Durability::Buffered);
        let mut parts = Vec::with_capacity(queued.len());
        let mut deleted = Vec::new();
        for QueuedSubmission { submission, reply, _room, .. } in queued {
            let Submission {
                mut events,
                publish_times,
                mut deleted_topics,
                spans,
                mut state,
                durability,
                charges,
                permits,
            } = submission;
            deleted.append(&mut deleted_topics);
            parts.push(Part {
                events: events.len(),
                publish_times,
                spans,
                state: state.len(),
                durability,
                reply,
                charges,
                _permits: permits,
                _room,
            });
            batch.durability = batch.durability.max(durability);
            batch.state.append(&mut state);
            // Usually there is one submission, and nothing has to be moved.
            if batch.events.is_empty() {
                batch.events = events;
            } else {
                batch.events.append(&mut events);
            }
        }
        let runs = TopicRuns::of(&batch.events, topics);
        batch.deleted_topics.clone_from(&deleted);
        let is_alone = parts.len() == 1;
        let events = (!is_alone || runs.have_followers()).then(|| batch.events.clone());
        let state = if is_alone { Vec::new() } else { batch.state.clone() };
        (batch, Self { parts, runs, deleted, events, state })
    }

    /// Completes all submissions. If one of them made the batch fail, each is retried on its own, so that
    /// it does not fail the others.
    pub(super) async fn complete(
        self,
        outcome: Result<Committed, CommitError>,
        engine: &dyn Engine,
        topics: &Topics,
        meter: &mut CommitMeter,
    ) {
        match outcome {
            Ok(committed) => {
                // In the order of the commits: what was stored before is forgotten, and what follows is not.
                self.deleted
                    .iter()
                    .filter_map(|topic| topics.find(topic))
                    .for_each(|it| it.deleted());
                self.stored(committed, engine, meter);
            }
            Err(error) if self.parts.len() > 1 && is_caused_by_one(&error) => {
                self.retry_each(engine, topics, meter).await;
            }
            Err(error) => self.fail(&error),
        }
    }

    fn stored(mut self, committed: Committed, engine: &dyn Engine, meter: &mut CommitMeter) {
        let Committed { positions, version, durability, write } = committed;
        meter.committed(self.parts.iter().map(|part| &part.publish_times), write, now());
        self.runs.count(&positions);
        if is_final(engine, durability) {
            let times = self.parts.iter().flat_map(|part| part.publish_times.each(part.events));
            self.runs.feed(self.events, times, &positions);
        }
        let mut left = positions;
        for part in self.parts {
            let others = left.split_off(part.events);
            let positions = std::mem::replace(&mut left, others);
            part.charges.keep();
            part.spans.stored(&positions);
            // The receiver may have been dropped.
            let _ = part.reply.send(Ok(CommitReceipt { positions, version }));
        }
        // After the answers: a topic may have thousands of followers.
        self.runs.wake_followers();
    }

    async fn retry_each(self, engine: &dyn Engine, topics: &Topics, meter: &mut CommitMeter) {
        let mut events = self.events.into_iter().flatten();
        let mut state = self.state.into_iter();
        for part in self.parts {
            let batch = Batch {
                events: events.by_ref().take(part.events).collect(),
                expected_last: Vec::new(),
                deleted_topics: Vec::new(),
                state: state.by_ref().take(part.state).collect(),
                durability: part.durability,
            };
            let runs = TopicRuns::of(&batch.events, topics);
            let copies = runs.have_followers().then(|| batch.events.clone());
            let (deleted, state) = (Vec::new(), Vec::new());
            let alone = Self { parts: vec![part], runs, deleted, events: copies, state };
            match engine.commit(batch).await {
                Ok(committed) => alone.stored(committed, engine, meter),
                Err(error) => alone.fail(&error),
            }
        }
    }

    fn fail(self, error: &CommitError) {
        for part in self.parts {
            part.spans.failed(error);
            // The receiver may have been dropped.
            let _ = part.reply.send(Err(error.clone()));
        }
    }
}

/// Returns whether the other submissions of a batch might be stored without the one that failed it.
fn is_caused_by_one(error: &CommitError) -> bool {
    matches!(
        error,
        CommitError::Conflict(_) | CommitError::TooLarge { .. } | CommitError::Damaged(_)
    )
}

/// Returns whether a commit of this durability cannot be rolled back while the process lives. On a
/// replica set an election can roll back weaker commits and reuse their positions; followers then learn
/// of the events from the engine.
fn is_final(engine: &dyn Engine, durability: Durability) -> bool {
    durability == Durability::Fsync || !engine.capabilities().several_gateways
}
