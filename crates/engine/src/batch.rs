//! What goes in through the one door, and what comes back.

use std::time::Duration;

use bytes::Bytes;
use prombus_proto::limits::{
    MAX_BATCH_BYTES, MAX_BATCH_EVENTS, MAX_EVENT_BYTES, MAX_STATE_VALUE_BYTES,
};
use prombus_proto::{EncodedEvent, Seq, Timestamp, Topic};

use crate::{CommitError, Expect, StateKey, Version};

/// How safe a commit is when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// In this process only. Engines without storage answer this; nobody asks for it.
    Memory,
    /// Handed to the operating system: survives the death of the process, not of the machine.
    Buffered,
    /// On stable storage.
    Fsync,
}

/// Anything that happens together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Events, in order, for any number of topics.
    pub events: Vec<EncodedEvent>,
    /// Topics whose last `seq` has to be this one before the batch.
    pub expected_last: Vec<(Topic, Seq)>,
    /// Changes of the keyed state, in order.
    pub state: Vec<StateOp>,
    /// How safe it has to be before it is answered.
    pub durability: Durability,
}

/// One change of the keyed state.
#[derive(Clone, Debug)]
pub enum StateOp {
    /// Sets a value.
    Put {
        /// Its key.
        key: StateKey,
        /// What it becomes.
        value: Bytes,
        /// When it is gone by itself.
        expires_at: Option<Timestamp>,
        /// What has to be there before.
        expect: Expect,
    },
    /// Removes a value; one that is not there is no error.
    Delete {
        /// Its key.
        key: StateKey,
        /// What has to be there before.
        expect: Expect,
    },
}

/// The answer to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Where each event of the batch is, in the batch's order.
    pub positions: Vec<Position>,
    /// The version that every value put by this commit has. Rises from commit to commit.
    pub version: Version,
    /// How safe all of it is now.
    pub durability: Durability,
    /// The write that it was stored by. Of commits that were stored together, the first tells it.
    pub write: Option<WriteStats>,
}

/// One write to the store, by which one or more commits were stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteStats {
    /// How many events the commits have.
    pub events: usize,
    /// How long the sync took that made them durable; nothing where none was needed.
    pub sync_time: Option<Duration>,
}

/// Where an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its place in the topic.
    pub seq: Seq,
    /// Whether it was there before this append.
    pub duplicate: bool,
}

impl Batch {
    /// A batch of events and nothing else.
    #[must_use]
    pub const fn of_events(events: Vec<EncodedEvent>, durability: Durability) -> Self {
        Self { events, expected_last: Vec::new(), state: Vec::new(), durability }
    }

    /// A batch of state changes and nothing else.
    #[must_use]
    pub const fn of_state(state: Vec<StateOp>, durability: Durability) -> Self {
        Self { events: Vec::new(), expected_last: Vec::new(), state, durability }
    }

    /// Checks the sizes that every engine relies on, and answers how many bytes it has at most.
    pub fn check_sizes(&self) -> Result<usize, CommitError> {
        let too_large = |what, bytes, limit| Err(CommitError::TooLarge { what, bytes, limit });
        if self.events.len() > MAX_BATCH_EVENTS {
            return too_large("number of events", self.events.len(), MAX_BATCH_EVENTS);
        }
        let mut total = 0;
        for event in &self.events {
            let bytes = event.max_json_bytes();
            if bytes > MAX_EVENT_BYTES {
                return too_large("event", bytes, MAX_EVENT_BYTES);
            }
            total += bytes;
        }
        for op in &self.state {
            if let StateOp::Put { value, .. } = op
                && value.len() > MAX_STATE_VALUE_BYTES
            {
                return too_large("state value", value.len(), MAX_STATE_VALUE_BYTES);
            }
            total += op.size();
        }
        if total > MAX_BATCH_BYTES {
            return too_large("batch", total, MAX_BATCH_BYTES);
        }
        Ok(total)
    }
}

impl StateOp {
    /// The key it changes.
    #[must_use]
    pub const fn key(&self) -> &StateKey {
        match self {
            StateOp::Put { key, .. } | StateOp::Delete { key, .. } => key,
        }
    }

    /// What has to be there before.
    #[must_use]
    pub const fn expect(&self) -> Expect {
        match self {
            StateOp::Put { expect, .. } | StateOp::Delete { expect, .. } => *expect,
        }
    }

    /// How many bytes it is about: its key, and what that becomes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            StateOp::Put { key, value, .. } => key.as_bytes().len() + value.len(),
            StateOp::Delete { key, .. } => key.as_bytes().len(),
        }
    }
}
