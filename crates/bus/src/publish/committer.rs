//! The task that commits submissions in order, and completes them.
//!
//! An engine that merges concurrent commits itself gets every submission as soon as it is queued.
//! For other engines, submissions that arrive during a commit are merged into the next one.

mod merged;
mod topic_runs;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use prombus_engine::{
    CommitError, Committed, Durability, Engine, Position, StateOp, Unavailable, Version,
};
use prombus_proto::limits::{MAX_BATCH_BYTES, MAX_BATCH_EVENTS};
use prombus_proto::{EncodedEvent, Topic};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use self::merged::MergedSubmissions;
use super::publish_times::PublishTimes;
use crate::error::Refusal;
use crate::limits::{Charges, TopicPermit};
use crate::metrics::CommitMeter;
use crate::spans::PublishSpans;
use crate::topics::Topics;

/// Events and state changes that are committed atomically.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) events: Vec<EncodedEvent>,
    pub(crate) publish_times: PublishTimes,
    /// Deleted before the events are appended.
    pub(crate) deleted_topics: Vec<Topic>,
    pub(crate) spans: PublishSpans,
    pub(crate) state: Vec<StateOp>,
    pub(crate) durability: Durability,
    /// What it took from the rate limits, which returns unless it is stored.
    pub(crate) charges: Charges,
    /// Room for the topics it creates.
    pub(crate) permits: Vec<TopicPermit>,
}

pub(crate) type CommitResult = Result<CommitReceipt, CommitError>;

/// The result of a submission that is stored.
#[derive(Debug)]
pub(crate) struct CommitReceipt {
    /// The positions of its events, in order.
    pub(crate) positions: Vec<Position>,
    /// The version of its state changes.
    pub(crate) version: Version,
}

/// A submission that is not committed yet.
#[derive(Debug)]
pub struct PendingCommit(oneshot::Receiver<CommitResult>);

/// A handle to the committer task.
#[derive(Clone, Debug)]
pub(crate) struct Committer {
    queue: mpsc::UnboundedSender<QueuedSubmission>,
    /// Bounds the bytes in the queue, for all connections together.
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct QueuedSubmission {
    submission: Submission,
    bytes: usize,
    reply: oneshot::Sender<CommitResult>,
    _room: OwnedSemaphorePermit,
}

impl QueuedSubmission {
    const fn deletes(&self) -> bool {
        !self.submission.deleted_topics.is_empty()
    }
}

/// The bytes that may wait in the queue.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// The limits of one merged batch, so that a submission does not wait for the whole queue.
const MAX_MERGED_BYTES: usize = 4 << 20;
const MAX_MERGED_EVENTS: usize = 20_000;
const _: () = assert!(MAX_MERGED_BYTES < MAX_BATCH_BYTES && MAX_MERGED_EVENTS < MAX_BATCH_EVENTS);
const _: () = assert!(MAX_QUEUED_BYTES > MAX_BATCH_BYTES);

impl Committer {
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        topics: Arc<Topics>,
        meter: CommitMeter,
    ) -> (Self, JoinHandle<()>) {
        let (queue, queued) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(engine, topics, meter, queued));
        (Self { queue, room: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)) }, task)
    }

    /// Queues `submission` as soon as there is room. The receiver gets its result.
    pub(crate) async fn submit(
        &self,
        submission: Submission,
    ) -> Result<oneshot::Receiver<CommitResult>, CommitError> {
        let bytes = submission.bytes();
        let permits = u32::try_from(bytes.min(MAX_QUEUED_BYTES)).unwrap_or(u32::MAX);
        let closed = || CommitError::from(Unavailable::Closed);
        let room = Arc::clone(&self.room).acquire_many_owned(permits).await;
        let (reply, receiver) = oneshot::channel();
        let room = room.map_err(|_| closed())?;
        let queued = QueuedSubmission { submission, bytes, reply, _room: room };
        self.queue.send(queued).map_err(|_| closed())?;
        Ok(receiver)
    }
}

impl PendingCommit {
    pub(crate) async fn submit(
        committer: &Committer,
        submission: Submission,
    ) -> Result<Self, Refusal> {
        Ok(Self(committer.submit(submission).await?))
    }

    /// Waits for the commit, and returns the positions of its events.
    ///
    /// # Errors
    ///
    /// If the engine refused the commit, or the bus was closed before.
    pub async fn stored(&mut self) -> Result<Vec<Position>, Refusal> {
        match (&mut self.0).await {
            Ok(result) => Ok(result?.positions),
            Err(_) => Err(Refusal::shutting_down()),
        }
    }
}

impl Submission {
    pub(crate) const fn of_state(state: Vec<StateOp>, durability: Durability) -> Self {
        Self {
            events: Vec::new(),
            publish_times: PublishTimes::new(),
            deleted_topics: Vec::new(),
            spans: PublishSpans::none(),
            state,
            durability,
            charges: Charges::none(),
            permits: Vec::new(),
        }
    }

    fn bytes(&self) -> usize {
        let events: usize = self.events.iter().map(EncodedEvent::max_json_bytes).sum();
        let state: usize = self.state.iter().map(StateOp::size).sum();
        events + state
    }
}

async fn run(
    engine: Arc<dyn Engine>,
    topics: Arc<Topics>,
    mut meter: CommitMeter,
    mut queue: mpsc::UnboundedReceiver<QueuedSubmission>,
) {
    let engine = engine.as_ref();
    let engine_merges = engine.capabilities().gathers_commits;
    let max_in_flight = if engine_merges { usize::MAX } else { 1 };
    // Commits complete in the order in which they were started.
    let mut in_flight: VecDeque<InFlightCommit<'_>> = VecDeque::new();
    let mut left_over = None;
    let mut is_closed = false;
    while !is_closed || !in_flight.is_empty() {
        let step = poll_fn(|context| {
            if let Some(first) = in_flight.front_mut()
                && let Poll::Ready(outcome) = first.poll_outcome(context)
            {
                return Poll::Ready(Step::Complete(outcome));
            }
            if is_closed || in_flight.len() >= max_in_flight {
                return Poll::Pending;
            }
            let queued = match left_over.take() {
                Some(left_over) => Some(left_over),
                None => ready!(queue.poll_recv(context)),
            };
            Poll::Ready(queued.map_or(Step::Close, Step::Start))
        });
        match step.await {
            Step::Complete(outcome) => {
                let first = in_flight.pop_front().expect("it has an outcome");
                first.submissions.complete(outcome, engine, &topics, &mut meter).await;
            }
            Step::Start(first) => {
                let mut queued = vec![first];
                if !engine_merges && !queued[0].deletes() {
                    left_over = merge_queued(&mut queue, &mut queued);
                }
                let (batch, submissions) = MergedSubmissions::merge(queued, &topics);
                let commit = engine.commit(batch);
                let mut started = InFlightCommit { commit, outcome: None, submissions };
                poll_fn(|context| started.start(context)).await;
                in_flight.push_back(started);
            }
            Step::Close => is_closed = true,
        }
    }
}

/// The next step of the committer.
enum Step {
    /// The oldest commit in flight has an outcome.
    Complete(Result<Committed, CommitError>),
    Start(QueuedSubmission),
    /// The queue is closed and empty.
    Close,
}

/// A commit that was handed to the engine.
struct InFlightCommit<'a> {
    commit: Pin<Box<dyn Future<Output = Result<Committed, CommitError>> + Send + 'a>>,
    /// Set if the engine completed the commit at the first poll.
    outcome: Option<Result<Committed, CommitError>>,
    submissions: MergedSubmissions,
}

impl InFlightCommit<'_> {
    /// Polls the commit for the first time, which hands it to the engine: engines take commits in the
    /// order of their first polls.
    fn start(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Poll::Ready(outcome) = self.commit.as_mut().poll(context) {
            self.outcome = Some(outcome);
        }
        Poll::Ready(())
    }

    fn poll_outcome(&mut self, context: &mut Context<'_>) -> Poll<Result<Committed, CommitError>> {
        match self.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => self.commit.as_mut().poll(context),
        }
    }
}

/// Moves queued submissions to `merged` up to the limits, and returns the first that does not fit.
fn merge_queued(
    queue: &mut mpsc::UnboundedReceiver<QueuedSubmission>,
    merged: &mut Vec<QueuedSubmission>,
) -> Option<QueuedSubmission> {
    let size = |queued: &QueuedSubmission| (queued.bytes, queued.submission.events.len());
    let (mut bytes, mut events) = merged.first().map_or((0, 0), size);
    while let Ok(next) = queue.try_recv() {
        bytes += next.bytes;
        events += next.submission.events.len();
        // What is submitted after a deletion must not be stored with it, and before it.
        if bytes > MAX_MERGED_BYTES || events > MAX_MERGED_EVENTS || next.deletes() {
            return Some(next);
        }
        merged.push(next);
    }
    None
}
