//! The requests that the journal serves, and their answers.

use prombus_proto::{Seq, Topic};
use tokio::sync::oneshot;

use crate::disk::record::SuffixChecksum;
use crate::disk::shared::Shared;
use crate::{
    Batch, Bounds, CommitError, Committed, Durability, Position, Retention, Version, WriteStats,
};

/// A request to the journal. Requests are served in order.
pub(crate) enum Request {
    /// A batch whose sizes were checked.
    Commit {
        batch: Batch,
        /// The size of the batch.
        bytes: usize,
        /// One per event.
        suffix_checksums: Vec<SuffixChecksum>,
        reply: oneshot::Sender<CommitAnswer>,
    },
    Trim {
        topic: Topic,
        below: Seq,
        reply: oneshot::Sender<Result<Bounds, CommitError>>,
    },
    Retain {
        topic: Topic,
        rule: Retention,
        reply: oneshot::Sender<Result<Bounds, CommitError>>,
    },
    Close {
        reply: CloseReply,
    },
}

pub(super) type CloseReply = oneshot::Sender<Result<(), CommitError>>;

/// The answer to a commit, and the batch itself: dropping its events would take a quarter of the
/// journal's time, and costs the committer nothing extra.
pub(crate) type CommitAnswer = (Result<Committed, CommitError>, Batch);

/// The answer to a request, provided that its batch is stored.
pub(super) enum Outcome {
    Committed { positions: Vec<Position>, version: Version },
    Trimmed(Topic),
    Refused(CommitError),
}

impl Outcome {
    pub(super) fn events(&self) -> usize {
        match self {
            Outcome::Committed { positions, .. } => positions.len(),
            Outcome::Trimmed(_) | Outcome::Refused(_) => 0,
        }
    }
}

impl Request {
    pub(super) fn wants_sync(&self) -> bool {
        match self {
            Request::Commit { batch, .. } => {
                batch.durability == Durability::Fsync || !batch.deleted_topics.is_empty()
            }
            Request::Trim { .. } | Request::Retain { .. } | Request::Close { .. } => true,
        }
    }

    /// Returns `true` if it can free space.
    pub(super) fn is_trim(&self) -> bool {
        match self {
            Request::Trim { .. } | Request::Retain { .. } => true,
            Request::Commit { batch, .. } => {
                batch.events.is_empty() && !batch.deleted_topics.is_empty()
            }
            Request::Close { .. } => false,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Request::Commit { bytes, .. } => *bytes,
            Request::Trim { .. } | Request::Retain { .. } | Request::Close { .. } => 0,
        }
    }

    pub(super) fn refuse(self, error: CommitError) {
        match self {
            Request::Commit { reply, batch, .. } => send(reply, (Err(error), batch)),
            Request::Trim { reply, .. } | Request::Retain { reply, .. } => send(reply, Err(error)),
            Request::Close { reply } => send(reply, Err(error)),
        }
    }

    /// Sends the answer. The first commit of a batch takes `write`, the figures of the whole write.
    pub(super) fn answer(
        self,
        shared: &Shared,
        outcome: Outcome,
        durability: Durability,
        write: &mut Option<WriteStats>,
    ) {
        match (self, outcome) {
            (Request::Commit { reply, batch, .. }, Outcome::Committed { positions, version }) => {
                let write = write.take();
                let committed = Committed { positions, version, durability, write };
                send(reply, (Ok(committed), batch));
            }
            (
                Request::Trim { reply, .. } | Request::Retain { reply, .. },
                Outcome::Trimmed(topic),
            ) => {
                let view = shared.view();
                let bounds = view.topics.get(&topic).map_or(Bounds::EMPTY, |view| view.bounds());
                send(reply, Ok(bounds));
            }
            (request, Outcome::Refused(error)) => request.refuse(error),
            _ => unreachable!("`stage` returns the outcome that fits the request"),
        }
    }
}

/// Sends an answer. The receiver may have been dropped.
pub(super) fn send<T>(reply: oneshot::Sender<T>, answer: T) {
    let _ = reply.send(answer);
}
