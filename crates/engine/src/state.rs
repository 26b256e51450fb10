//! The keyed state.

use std::fmt;

use bytes::Bytes;
use prombus_proto::Timestamp;
use prombus_proto::limits::MAX_STATE_KEY_BYTES;
use thiserror::Error;

/// A key of the keyed state: 1 to [`MAX_STATE_KEY_BYTES`] bytes, ordered as bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateKey(Bytes);

/// Why bytes are no key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a state key has 1 to {MAX_STATE_KEY_BYTES} bytes, this one has {0}")]
pub struct InvalidStateKey(pub usize);

/// A value and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// Its key.
    pub key: StateKey,
    /// What was put.
    pub value: Bytes,
    /// The commit that put it.
    pub version: Version,
    /// When it is gone by itself.
    pub expires_at: Option<Timestamp>,
}

/// Which commit put a value. Rises from commit to commit, never comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// What has to be there before a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Anything.
    #[default]
    Any,
    /// Nothing, or something that has expired.
    Absent,
    /// A value of this version, not expired.
    Version(Version),
}

impl Expect {
    /// Whether it holds where `actual` is the version of what is there.
    #[must_use]
    pub fn holds(self, actual: Option<Version>) -> bool {
        match self {
            Expect::Any => true,
            Expect::Absent => actual.is_none(),
            Expect::Version(expected) => actual == Some(expected),
        }
    }
}

impl StateKey {
    /// The key, if its length allows.
    pub fn new(key: impl Into<Bytes>) -> Result<Self, InvalidStateKey> {
        let key = key.into();
        if key.is_empty() || key.len() > MAX_STATE_KEY_BYTES {
            return Err(InvalidStateKey(key.len()));
        }
        Ok(Self(key))
    }

    /// The key as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl StateEntry {
    /// Whether it is gone at `now`.
    #[must_use]
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}
