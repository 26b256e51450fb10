//! Reads a topic and checks the answer of the store.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use prombus_engine::{Damaged, Engine, Page, ReadBudget, ReadError, StoredEvent, Unavailable};
use prombus_proto::{ErrorCode, Seq, Topic};

use crate::bus::Bus;
use crate::error::Refusal;

/// The next events of a topic, or damage in their place.
#[derive(Clone, Debug)]
pub enum ReadPage<E> {
    Events(Vec<E>),
    /// The next events cannot be read back. Those after them can.
    Damaged(DamagedRange),
}

/// Events that the store has but cannot read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    pub first: Seq,
    /// Inclusive.
    pub last: Seq,
}

/// Reads like [`Engine::read`], and fails if the answer is about events before `from`: a reader
/// that continues behind it would return to the same position forever.
pub(crate) async fn read(
    engine: &dyn Engine,
    topic: &Topic,
    from: Seq,
    budget: ReadBudget,
) -> Result<Page, ReadError> {
    let result = engine.read(topic, from, budget).await;
    let reached = match &result {
        Ok(page) => page.events.first().map(|first| first.seq),
        Err(ReadError::Damaged(Damaged::Events { last, .. })) => Some(*last),
        Err(_) => None,
    };
    match reached {
        Some(seq) if seq < from => Err(no_progress(topic, from, format!("it returned {seq}"))),
        _ => result,
    }
}

impl DamagedRange {
    /// Returns the damage that a read from `from` found.
    ///
    /// # Errors
    ///
    /// If the read failed for another reason.
    pub(crate) fn of(error: ReadError, from: Seq) -> Result<Self, ReadError> {
        match error {
            ReadError::Damaged(Damaged::Events { first, last, .. }) => {
                // The client learns the positions; only the log names the file.
                tracing::warn!("{error}");
                Ok(Self { first: first.max(from), last })
            }
            error => Err(error),
        }
    }

    /// Returns the error for a request that needs these events.
    #[must_use]
    pub fn refusal(&self, topic: &Topic) -> Refusal {
        let Self { first, last } = self;
        let message = match first == last {
            true => format!("event {first} of {topic} is damaged"),
            false => format!("events {first} to {last} of {topic} are damaged"),
        };
        Refusal::new(ErrorCode::Internal, message)
    }
}

impl Bus {
    /// Returns events of `topic` within `range`, in order: at least one, whatever the budget. The
    /// page is empty only if retention has removed all of them.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or returns no events although it has them.
    pub async fn read(
        &self,
        topic: &Topic,
        range: Range<Seq>,
        budget: ReadBudget,
    ) -> Result<ReadPage<StoredEvent>, Refusal> {
        let engine = self.engine().as_ref();
        let mut events = match read(engine, topic, range.start, budget).await {
            Ok(page) => page.events,
            Err(error) => {
                let DamagedRange { first, last } = DamagedRange::of(error, range.start)?;
                let last = last.min(range.end.previous());
                return Ok(ReadPage::Damaged(DamagedRange { first, last }));
            }
        };
        if events.is_empty() && engine.bounds(topic).await?.first < range.end {
            return Err(no_progress(topic, range.start, "it returned no events".to_owned()).into());
        }
        events.truncate(events.partition_point(|event| event.seq < range.end));
        Ok(ReadPage::Events(events))
    }
}

/// The error of a store that breaks its contract.
pub(crate) fn no_progress(topic: &Topic, from: Seq, reason: String) -> ReadError {
    let context = format!("the store cannot read {topic} from {from} on");
    ReadError::Unavailable(Unavailable::Io { context, source: Arc::new(io::Error::other(reason)) })
}
