//! The one task that commits what is handed to it, in that order, and answers everybody.
//!
//! An engine that gathers commits by itself gets each as soon as it is there, and is never without one
//! while any waits. For any other, all that waits is gathered into one batch while the last is under way.

mod gathered;
mod runs;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use prombus_engine::{
    CommitError, Committed, Durability, Engine, Position, StateOp, Unavailable, Version,
};
use prombus_proto::EncodedEvent;
use prombus_proto::limits::{MAX_BATCH_BYTES, MAX_BATCH_EVENTS};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use self::gathered::Gathered;
use crate::metrics::CommitMeter;
use crate::publish::PublishTimes;
use crate::topics::Topics;

/// What is to be committed together.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) events: Vec<EncodedEvent>,
    /// When each of the events was taken.
    pub(crate) taken: PublishTimes,
    pub(crate) state: Vec<StateOp>,
    pub(crate) durability: Durability,
}

/// What became of a submission.
pub(crate) type Answer = Result<Stored, CommitError>;

/// A submission that is stored.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Where each of its events is.
    pub(crate) positions: Vec<Position>,
    /// The version of all that it put into the state.
    pub(crate) version: Version,
}

/// The way to the committer.
#[derive(Clone, Debug)]
pub(crate) struct Committer {
    queue: mpsc::UnboundedSender<Waiting>,
    /// Bytes that may wait, all connections together.
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Waiting {
    submission: Submission,
    bytes: usize,
    answer: oneshot::Sender<Answer>,
    _room: OwnedSemaphorePermit,
}

/// How much may wait to be committed.
const WAITING_BYTES: usize = 64 << 20;
/// How much is gathered into one batch, so that one answer does not wait for the whole queue.
const GATHERED_BYTES: usize = 4 << 20;
const GATHERED_EVENTS: usize = 20_000;
const _: () = assert!(GATHERED_BYTES < MAX_BATCH_BYTES && GATHERED_EVENTS < MAX_BATCH_EVENTS);
const _: () = assert!(WAITING_BYTES > MAX_BATCH_BYTES);

impl Committer {
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        topics: Arc<Topics>,
        meter: CommitMeter,
    ) -> (Self, JoinHandle<()>) {
        let (queue, waiting) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(engine, topics, meter, waiting));
        (Self { queue, room: Arc::new(Semaphore::new(WAITING_BYTES)) }, task)
    }

    /// Hands `submission` over, as soon as there is room for it. The answer comes by itself.
    pub(crate) async fn submit(
        &self,
        submission: Submission,
    ) -> Result<oneshot::Receiver<Answer>, CommitError> {
        let bytes = submission.bytes();
        let permits = u32::try_from(bytes.min(WAITING_BYTES)).unwrap_or(u32::MAX);
        let closed = || CommitError::from(Unavailable::Closed);
        let room = Arc::clone(&self.room).acquire_many_owned(permits).await;
        let (answer, receiver) = oneshot::channel();
        let waiting = Waiting { submission, bytes, answer, _room: room.map_err(|_| closed())? };
        self.queue.send(waiting).map_err(|_| closed())?;
        Ok(receiver)
    }
}

impl Submission {
    pub(crate) const fn of_state(state: Vec<StateOp>, durability: Durability) -> Self {
        Self { events: Vec::new(), taken: PublishTimes::none(), state, durability }
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
    mut queue: mpsc::UnboundedReceiver<Waiting>,
) {
    let engine = engine.as_ref();
    let engine_gathers = engine.capabilities().gathers_commits;
    let most_under_way = if engine_gathers { usize::MAX } else { 1 };
    // In the order they were begun, which is the order they are settled in.
    let mut under_way: VecDeque<UnderWay<'_>> = VecDeque::new();
    let mut too_much = None;
    let mut is_over = false;
    while !is_over || !under_way.is_empty() {
        let next = poll_fn(|context| {
            if let Some(first) = under_way.front_mut()
                && let Poll::Ready(outcome) = first.poll_outcome(context)
            {
                return Poll::Ready(Next::Settle(outcome));
            }
            if is_over || under_way.len() >= most_under_way {
                return Poll::Pending;
            }
            let waiting = match too_much.take() {
                Some(left_over) => Some(left_over),
                None => ready!(queue.poll_recv(context)),
            };
            Poll::Ready(waiting.map_or(Next::Finish, Next::Begin))
        });
        match next.await {
            Next::Settle(outcome) => {
                let first = under_way.pop_front().expect("it has an outcome");
                first.gathered.settle(outcome, engine, &topics, &mut meter).await;
            }
            Next::Begin(first) => {
                let mut waiting = vec![first];
                if !engine_gathers {
                    too_much = gather(&mut queue, &mut waiting);
                }
                let (batch, gathered) = Gathered::batch_of(waiting, &topics);
                let commit = engine.commit(batch);
                let mut begun = UnderWay { commit, outcome: None, gathered };
                poll_fn(|context| begun.hand_over(context)).await;
                under_way.push_back(begun);
            }
            Next::Finish => is_over = true,
        }
    }
}

/// What the committer does next.
enum Next {
    /// The oldest commit that is under way has come to its end.
    Settle(Result<Committed, CommitError>),
    Begin(Waiting),
    /// Nothing will come any more.
    Finish,
}

/// A commit that the engine has.
struct UnderWay<'a> {
    commit: Pin<Box<dyn Future<Output = Result<Committed, CommitError>> + Send + 'a>>,
    /// Where the engine answered at once.
    outcome: Option<Result<Committed, CommitError>>,
    gathered: Gathered,
}

impl UnderWay<'_> {
    /// The engine takes it when it is first asked for the outcome. That is now, so that it gets commits
    /// in their order.
    fn hand_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
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

/// Adds all that waits by now. Answers what does not fit any more.
fn gather(
    queue: &mut mpsc::UnboundedReceiver<Waiting>,
    gathered: &mut Vec<Waiting>,
) -> Option<Waiting> {
    let size = |waiting: &Waiting| (waiting.bytes, waiting.submission.events.len());
    let (mut bytes, mut events) = gathered.first().map_or((0, 0), size);
    while let Ok(next) = queue.try_recv() {
        bytes += next.bytes;
        events += next.submission.events.len();
        if bytes > GATHERED_BYTES || events > GATHERED_EVENTS {
            return Some(next);
        }
        gathered.push(next);
    }
    None
}

/// Through the runtime, so that a test can move the time.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
