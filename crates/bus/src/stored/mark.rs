//! Marks: which events a group has handled, until the marks expire.
//!
//! A mark exists only in the engine's keyed state, so marks cost the bus no memory.

use std::time::Duration;

use prombus_engine::{Engine, Expect, ReadError, StateKey, StateKind, StateOp};
use prombus_proto::limits::{
    DEFAULT_MARK_TTL_MS, MAX_ID_BYTES, MAX_NAME_BYTES, MAX_STATE_KEY_BYTES,
};
use prombus_proto::{EventId, Group, Timestamp, Topic};

use super::SEPARATOR;

/// The lifetime of a mark if the client names none.
pub const DEFAULT_MARK_TTL: Duration = Duration::from_millis(DEFAULT_MARK_TTL_MS);

const PREFIX: &str = "dedupe/";
/// The value of every mark: the version of the format. The key holds the rest.
const VALUE: &[u8] = b"1";
pub(super) const KIND: StateKind = StateKind {
    prefix: PREFIX,
    separator: SEPARATOR,
    suffix: "",
    collection: Some("dedupe"),
    fields: &[],
    marker: Some(VALUE),
};

const _: () = assert!(
    PREFIX.len() + 2 * MAX_NAME_BYTES + MAX_ID_BYTES + 2 * SEPARATOR.len() <= MAX_STATE_KEY_BYTES
);

/// Marks of one group to be stored with the next commit.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    key_prefix: String,
    expires_at: Timestamp,
    ops: Vec<StateOp>,
    bytes: usize,
}

impl Marks {
    /// No marks yet; those added for `group` on `topic` expire at `expires_at`.
    pub(crate) fn of(topic: &Topic, group: &Group, expires_at: Timestamp) -> Self {
        Self { key_prefix: key_prefix(topic, group), expires_at, ops: Vec::new(), bytes: 0 }
    }

    pub(crate) fn add(&mut self, id: &EventId) {
        let op = StateOp::Put {
            key: key(&self.key_prefix, id),
            value: VALUE.into(),
            expires_at: Some(self.expires_at),
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

/// Returns for each of `ids` whether it is marked.
pub(crate) async fn are_marked(
    engine: &dyn Engine,
    topic: &Topic,
    group: &Group,
    ids: &[EventId],
) -> Result<Vec<bool>, ReadError> {
    let prefix = key_prefix(topic, group);
    let keys: Vec<_> = ids.iter().map(|id| key(&prefix, id)).collect();
    Ok(engine.get_many(&keys).await?.iter().map(Option::is_some).collect())
}

/// The prefix of the keys of all marks of `topic`.
pub(crate) fn prefix_of(topic: &Topic) -> Vec<u8> {
    format!("{PREFIX}{topic}{SEPARATOR}").into_bytes()
}

/// The prefix of the keys of all marks of `group`.
pub(crate) fn prefix_of_group(topic: &Topic, group: &Group) -> Vec<u8> {
    key_prefix(topic, group).into_bytes()
}

fn key_prefix(topic: &Topic, group: &Group) -> String {
    format!("{PREFIX}{topic}{SEPARATOR}{group}{SEPARATOR}")
}

fn key(prefix: &str, id: &EventId) -> StateKey {
    StateKey::new(format!("{prefix}{id}")).expect("the longest names and ids fit into a key")
}
