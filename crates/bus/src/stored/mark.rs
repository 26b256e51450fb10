//! What groups have handled: marks, which end by themselves.
//!
//! A mark is an entry of the keyed state and nothing else, so it costs no memory here; over the
//! memory engine it is all in memory.

use std::time::Duration;

use prombus_engine::{Engine, Expect, ReadError, StateKey, StateOp};
use prombus_proto::limits::{
    DEFAULT_MARK_TTL_MS, MAX_ID_BYTES, MAX_NAME_BYTES, MAX_STATE_KEY_BYTES,
};
use prombus_proto::{EventId, Group, Timestamp, Topic};

/// How long a mark is kept unless it says so.
pub const DEFAULT_MARK_TTL: Duration = Duration::from_millis(DEFAULT_MARK_TTL_MS);

const PREFIX: &str = "dedupe/";
/// What is stored: the form of the mark. All else is in the key.
const FORM: &[u8] = b"1";

const _: () = assert!(
    PREFIX.len() + 2 * MAX_NAME_BYTES + MAX_ID_BYTES + 2 * "::".len() <= MAX_STATE_KEY_BYTES
);

/// Marks of one group that are to be stored.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// What their keys start with.
    start: String,
    until: Timestamp,
    ops: Vec<StateOp>,
    bytes: usize,
}

impl Marks {
    /// None yet, of `group` on `topic`, kept until then.
    pub(crate) fn of(topic: &Topic, group: &Group, until: Timestamp) -> Self {
        Self { start: start_of_keys(topic, group), until, ops: Vec::new(), bytes: 0 }
    }

    pub(crate) fn add(&mut self, id: &EventId) {
        let op = StateOp::Put {
            key: key(&self.start, id),
            value: FORM.into(),
            expires_at: Some(self.until),
            expect: Expect::Any,
        };
        self.bytes += op.size();
        self.ops.push(op);
    }

    pub(crate) fn append(&mut self, mut other: Marks) {
        self.ops.append(&mut other.ops);
        self.bytes += other.bytes;
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn into_state(self) -> Vec<StateOp> {
        self.ops
    }
}

/// Which of `ids` are marked, by their places.
pub(crate) async fn are_marked(
    engine: &dyn Engine,
    topic: &Topic,
    group: &Group,
    ids: &[EventId],
) -> Result<Vec<bool>, ReadError> {
    let start = start_of_keys(topic, group);
    let keys: Vec<_> = ids.iter().map(|id| key(&start, id)).collect();
    Ok(engine.get_many(&keys).await?.iter().map(Option::is_some).collect())
}

fn start_of_keys(topic: &Topic, group: &Group) -> String {
    format!("{PREFIX}{topic}::{group}::")
}

fn key(start: &str, id: &EventId) -> StateKey {
    StateKey::new(format!("{start}{id}")).expect("the longest names and ids make a key")
}
