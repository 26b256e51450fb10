//! Submissions that are committed as one batch, and what becomes of each of them.

use prombus_engine::{Batch, CommitError, Committed, Durability, Engine, StateOp};
use prombus_proto::EncodedEvent;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::runs::Runs;
use super::{Answer, Stored, Submission, Waiting, now};
use crate::metrics::CommitMeter;
use crate::publish::PublishTimes;
use crate::topics::Topics;

/// Submissions whose batch is under way.
pub(super) struct Gathered {
    parts: Vec<Part>,
    runs: Runs,
    /// The events once more, for who follows and for another try.
    kept: Option<Vec<EncodedEvent>>,
    kept_state: Vec<StateOp>,
}

/// How much of a batch one submission is.
struct Part {
    events: usize,
    taken: PublishTimes,
    state: usize,
    durability: Durability,
    answer: oneshot::Sender<Answer>,
    _room: OwnedSemaphorePermit,
}

impl Gathered {
    /// One batch of all of `waiting`.
    pub(super) fn batch_of(waiting: Vec<Waiting>, topics: &Topics) -> (Batch, Self) {
        let mut whole = Batch::of_state(Vec::new(), Durability::Buffered);
        let mut parts = Vec::with_capacity(waiting.len());
        for Waiting { submission, answer, _room, .. } in waiting {
            let Submission { mut events, taken, mut state, durability } = submission;
            let part =
                Part { events: events.len(), taken, state: state.len(), durability, answer, _room };
            parts.push(part);
            whole.durability = whole.durability.max(durability);
            whole.state.append(&mut state);
            // Mostly there is one, and nothing to move.
            if whole.events.is_empty() {
                whole.events = events;
            } else {
                whole.events.append(&mut events);
            }
        }
        let runs = Runs::of(&whole.events, topics);
        let is_alone = parts.len() == 1;
        let kept = (!is_alone || runs.are_followed()).then(|| whole.events.clone());
        let kept_state = if is_alone { Vec::new() } else { whole.state.clone() };
        (whole, Self { parts, runs, kept, kept_state })
    }

    /// Answers everybody. Where one of them made the batch impossible, each is tried by itself: nobody
    /// is refused for what another asked.
    pub(super) async fn settle(
        self,
        outcome: Result<Committed, CommitError>,
        engine: &dyn Engine,
        topics: &Topics,
        meter: &mut CommitMeter,
    ) {
        match outcome {
            Ok(committed) => self.stored(committed, engine, meter),
            Err(error) if self.parts.len() > 1 && is_about_one(&error) => {
                self.try_each(engine, topics, meter).await;
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn stored(self, committed: Committed, engine: &dyn Engine, meter: &mut CommitMeter) {
        let Committed { positions, version, durability, write } = committed;
        meter.committed(self.parts.iter().map(|part| &part.taken), write, now());
        if is_final(engine, durability) {
            let each = self.parts.iter().flat_map(|part| part.taken.each(part.events));
            self.runs.tell(self.kept, each, &positions);
        } else {
            self.runs.count(&positions);
        }
        let mut left = positions;
        for part in self.parts {
            let others = left.split_off(part.events);
            let positions = std::mem::replace(&mut left, others);
            let _ = part.answer.send(Ok(Stored { positions, version }));
        }
    }

    async fn try_each(self, engine: &dyn Engine, topics: &Topics, meter: &mut CommitMeter) {
        let mut events = self.kept.into_iter().flatten();
        let mut state = self.kept_state.into_iter();
        for part in self.parts {
            let batch = Batch {
                events: events.by_ref().take(part.events).collect(),
                expected_last: Vec::new(),
                state: state.by_ref().take(part.state).collect(),
                durability: part.durability,
            };
            let runs = Runs::of(&batch.events, topics);
            let kept = runs.are_followed().then(|| batch.events.clone());
            let alone = Self { parts: vec![part], runs, kept, kept_state: Vec::new() };
            match engine.commit(batch).await {
                Ok(committed) => alone.stored(committed, engine, meter),
                Err(error) => alone.refuse(&error),
            }
        }
    }

    fn refuse(self, error: &CommitError) {
        for part in self.parts {
            // Who is gone does not want the answer.
            let _ = part.answer.send(Err(error.clone()));
        }
    }
}

/// Whether the others of a batch could be stored without the one that has this fault.
fn is_about_one(error: &CommitError) -> bool {
    matches!(
        error,
        CommitError::Conflict(_) | CommitError::TooLarge { .. } | CommitError::Damaged(_)
    )
}

/// Whether what was stored so safely stays for as long as the process lives. Where it does not (an
/// election takes it back, and other events get its places), the engine tells when it does.
fn is_final(engine: &dyn Engine, durability: Durability) -> bool {
    durability == Durability::Fsync || !engine.capabilities().several_gateways
}
