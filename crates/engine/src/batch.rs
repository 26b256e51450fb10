//! What a commit takes and returns.

use std::time::Duration;

use bytes::Bytes;
use prombus_proto::limits::{
    MAX_BATCH_BYTES, MAX_BATCH_EVENTS, MAX_EVENT_BYTES, MAX_STATE_VALUE_BYTES,
};
use prombus_proto::{EncodedEvent, Seq, Timestamp, Topic};

use crate::{CommitError, Expect, StateKey, Version};

/// How durable a commit is when it returns, from weakest to strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// In the memory of this process only. Engines without storage report it; callers do not ask
    /// for it.
    Memory,
    /// Written to the operating system: survives a crash of the process, not of the machine.
    Buffered,
    /// Synced to stable storage: survives a crash of the machine.
    Fsync,
}

/// Events and state changes that are stored atomically.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The events to append, in order, for any number of topics.
    pub events: Vec<EncodedEvent>,
    /// Preconditions: each topic's last `seq` before the batch must be the given one. The topic need
    /// not occur in `events`. [`Seq::ZERO`] expects a topic that never had an event.
    pub expected_last: Vec<(Topic, Seq)>,
    /// The topics to delete before `events` are appended. Usually none.
    pub deleted_topics: Vec<Topic>,
    /// The state changes, in order.
    pub state: Vec<StateOp>,
    /// The durability to reach before the commit returns. An engine that cannot reach it reports
    /// what it reached.
    pub durability: Durability,
}

/// One change to the keyed state.
#[derive(Clone, Debug)]
pub enum StateOp {
    /// Sets a value, replacing any earlier one and its expiry.
    Put {
        /// The key to set.
        key: StateKey,
        /// The new value, which may be empty.
        value: Bytes,
        /// From when on the value counts as absent; `None` never expires.
        expires_at: Option<Timestamp>,
        /// The precondition on the current value.
        expect: Expect,
    },
    /// Removes a value. Removing an absent one succeeds.
    Delete {
        /// The key to remove.
        key: StateKey,
        /// The precondition on the current value.
        expect: Expect,
    },
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The position of each event, in the order of the batch.
    pub positions: Vec<Position>,
    /// The version of every value that this commit put. Increases from commit to commit.
    pub version: Version,
    /// The durability that the commit has reached.
    pub durability: Durability,
    /// The write that stored this commit. When one write stores several commits, only the first of
    /// them carries it, so that each write is counted once.
    pub write: Option<WriteStats>,
}

/// One write to the store, which may have stored several commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteStats {
    /// The number of events in all of its commits.
    pub events: usize,
    /// The duration of the fsync; `None` if none was needed.
    pub sync_time: Option<Duration>,
}

/// Where an appended event is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Its position in the topic.
    pub seq: Seq,
    /// The topic already had an event with this id; `seq` is the position of that event.
    pub duplicate: bool,
}

impl Batch {
    /// Creates a batch that only appends events.
    #[must_use]
    pub const fn of_events(events: Vec<EncodedEvent>, durability: Durability) -> Self {
        let state = Vec::new();
        Self { events, expected_last: Vec::new(), deleted_topics: Vec::new(), state, durability }
    }

    /// Creates a batch that only changes state.
    #[must_use]
    pub const fn of_state(state: Vec<StateOp>, durability: Durability) -> Self {
        let events = Vec::new();
        Self { events, expected_last: Vec::new(), deleted_topics: Vec::new(), state, durability }
    }

    /// Creates a batch that deletes `topic` and changes state.
    #[must_use]
    pub fn of_deletion(topic: Topic, state: Vec<StateOp>) -> Self {
        Self { deleted_topics: vec![topic], ..Self::of_state(state, Durability::Fsync) }
    }

    /// Checks the limits that every engine relies on, and returns an upper bound of the batch's size
    /// in bytes.
    ///
    /// # Errors
    ///
    /// [`CommitError::TooLarge`] names the limit that is exceeded.
    pub fn check_sizes(&self) -> Result<usize, CommitError> {
        let too_large = |what, bytes, limit| Err(CommitError::TooLarge { what, bytes, limit });
        if self.events.len() > MAX_BATCH_EVENTS {
            return too_large("number of events", self.events.len(), MAX_BATCH_EVENTS);
        }
        let topics = self.deleted_topics.len();
        if topics > MAX_BATCH_EVENTS {
            return too_large("number of deleted topics", topics, MAX_BATCH_EVENTS);
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
    /// Returns the key that this operation changes.
    #[must_use]
    pub const fn key(&self) -> &StateKey {
        match self {
            StateOp::Put { key, .. } | StateOp::Delete { key, .. } => key,
        }
    }

    /// Returns the precondition on the current value.
    #[must_use]
    pub const fn expect(&self) -> Expect {
        match self {
            StateOp::Put { expect, .. } | StateOp::Delete { expect, .. } => *expect,
        }
    }

    /// Returns the size of the key and the new value in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            StateOp::Put { key, value, .. } => key.as_bytes().len() + value.len(),
            StateOp::Delete { key, .. } => key.as_bytes().len(),
        }
    }
}
