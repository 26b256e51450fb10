//! The one task that commits: it gathers all that waits into one batch, and answers everybody.

use std::sync::Arc;
use std::time::Instant;

use prombus_engine::{
    Batch, CommitError, Durability, Engine, Position, StateOp, Unavailable, Version,
};
use prombus_proto::EncodedEvent;
use prombus_proto::limits::{MAX_BATCH_BYTES, MAX_BATCH_EVENTS};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::metrics::CommitMeter;
use crate::moments::Moments;
use crate::topics::{TopicInUse, Topics};

/// What is to be committed together.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) events: Vec<EncodedEvent>,
    /// When each of the events was taken.
    pub(crate) taken: Moments,
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
        Self { events: Vec::new(), taken: Moments::none(), state, durability }
    }

    fn bytes(&self) -> usize {
        let events: usize = self.events.iter().map(EncodedEvent::max_json_bytes).sum();
        let state: usize = self.state.iter().map(StateOp::size).sum();
        events + state
    }

    fn into_batch(self) -> Batch {
        Batch {
            events: self.events,
            expected_last: Vec::new(),
            state: self.state,
            durability: self.durability,
        }
    }

    fn merge(&mut self, other: &mut Submission) {
        self.events.append(&mut other.events);
        self.state.append(&mut other.state);
        self.durability = self.durability.max(other.durability);
    }
}

async fn run(
    engine: Arc<dyn Engine>,
    topics: Arc<Topics>,
    mut meter: CommitMeter,
    mut queue: mpsc::UnboundedReceiver<Waiting>,
) {
    let mut too_much = None;
    loop {
        let first = match too_much.take() {
            Some(left_over) => left_over,
            None => match queue.recv().await {
                Some(first) => first,
                None => return,
            },
        };
        let (mut bytes, mut events) = (first.bytes, first.submission.events.len());
        let mut gathered = vec![first];
        while let Ok(next) = queue.try_recv() {
            bytes += next.bytes;
            events += next.submission.events.len();
            if bytes > GATHERED_BYTES || events > GATHERED_EVENTS {
                too_much = Some(next);
                break;
            }
            gathered.push(next);
        }
        commit(engine.as_ref(), &topics, &mut meter, gathered).await;
    }
}

/// Commits all of `gathered` at once. Where one of them makes that impossible, each is tried by
/// itself: nobody is refused for what another asked.
async fn commit(
    engine: &dyn Engine,
    topics: &Topics,
    meter: &mut CommitMeter,
    gathered: Vec<Waiting>,
) {
    let mut whole = Submission::of_state(vec![], Durability::Buffered);
    let mut parts = Vec::with_capacity(gathered.len());
    for Waiting { mut submission, answer, _room, .. } in gathered {
        let (events, state) = (submission.events.len(), submission.state.len());
        let taken = std::mem::take(&mut submission.taken);
        let durability = submission.durability;
        parts.push((Part { events, taken, state, durability }, answer, _room));
        whole.merge(&mut submission);
    }
    let runs = Runs::of(&whole.events, topics);
    // One copy serves both: who follows, and another try.
    let is_alone = parts.len() == 1;
    let kept = (!is_alone || runs.are_followed()).then(|| whole.events.clone());
    let kept_state = if is_alone { Vec::new() } else { whole.state.clone() };
    match engine.commit(whole.into_batch()).await {
        Ok(committed) => {
            let positions = committed.positions;
            let taken = parts.iter().map(|(part, ..)| &part.taken);
            meter.committed(positions.len(), taken, committed.sync_time, now());
            if is_final(engine, committed.durability) {
                let each = parts.iter().flat_map(|(part, ..)| part.taken.each(part.events));
                runs.tell(kept, each, &positions);
            } else {
                runs.count(&positions);
            }
            let mut positions = positions.into_iter();
            for (part, answer, _room) in parts {
                // Who is gone does not want the answer.
                let positions = positions.by_ref().take(part.events).collect();
                let _ = answer.send(Ok(Stored { positions, version: committed.version }));
            }
        }
        Err(error) => match kept {
            Some(events) if !is_alone && is_about_one(&error) => {
                let (mut events, mut state) = (events.into_iter(), kept_state.into_iter());
                for (part, answer, _room) in parts {
                    let single = Submission {
                        events: events.by_ref().take(part.events).collect(),
                        taken: part.taken,
                        state: state.by_ref().take(part.state).collect(),
                        durability: part.durability,
                    };
                    let _ = answer.send(commit_single(engine, topics, meter, single).await);
                }
            }
            _ => {
                for (_, answer, _room) in parts {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        },
    }
}

async fn commit_single(
    engine: &dyn Engine,
    topics: &Topics,
    meter: &mut CommitMeter,
    mut single: Submission,
) -> Answer {
    let runs = Runs::of(&single.events, topics);
    let kept = runs.are_followed().then(|| single.events.clone());
    let taken = std::mem::take(&mut single.taken);
    let committed = engine.commit(single.into_batch()).await?;
    let positions = committed.positions;
    meter.committed(positions.len(), std::iter::once(&taken), committed.sync_time, now());
    if is_final(engine, committed.durability) {
        runs.tell(kept, taken.each(positions.len()), &positions);
    } else {
        runs.count(&positions);
    }
    Ok(Stored { positions, version: committed.version })
}

/// How much of a batch one submission is.
struct Part {
    events: usize,
    taken: Moments,
    state: usize,
    durability: Durability,
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

/// The topics of a batch, and how many events in a row each has.
struct Runs(Vec<(Arc<TopicInUse>, usize)>);

impl Runs {
    fn of(events: &[EncodedEvent], topics: &Topics) -> Self {
        let mut runs: Vec<(Arc<TopicInUse>, usize)> = Vec::new();
        let now = now();
        for event in events {
            match runs.last_mut() {
                Some((run, count)) if run.topic == *event.topic() => *count += 1,
                _ => runs.push((topics.get(event.topic(), now), 1)),
            }
        }
        Self(runs)
    }

    /// Counts what is stored now.
    fn count(self, positions: &[Position]) {
        let mut positions = positions;
        for (topic, count) in self.0 {
            let (stored, others) = positions.split_at(count);
            positions = others;
            topic.series().committed(stored);
        }
    }

    fn are_followed(&self) -> bool {
        self.0.iter().any(|(topic, _)| topic.feed.has_followers())
    }

    /// Tells followers what is stored now, and counts it. Those who came since the events were not
    /// kept for them read them from the engine.
    fn tell(
        self,
        kept: Option<Vec<EncodedEvent>>,
        taken: impl Iterator<Item = Option<Instant>>,
        positions: &[Position],
    ) {
        let mut events = kept.map(|kept| kept.into_iter().zip(taken));
        let mut positions = positions;
        for (topic, count) in self.0 {
            let (stored, others) = positions.split_at(count);
            positions = others;
            topic.series().committed(stored);
            let is_followed = topic.feed.has_followers();
            match events.as_mut().map(|events| events.take(count)) {
                Some(run) if is_followed => {
                    let new = stored.iter().zip(run).filter(|(position, _)| !position.duplicate);
                    topic
                        .feed
                        .append(new.map(|(position, (event, taken))| (position.seq, event, taken)));
                }
                Some(run) => run.for_each(drop),
                None => {
                    let last = stored.iter().rfind(|position| !position.duplicate);
                    if let Some(last) = last.filter(|_| is_followed) {
                        topic.feed.wake(last.seq);
                    }
                }
            }
        }
    }
}

/// Through the runtime, so that a test can move the time.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
