//! The keyed state: keys, values, versions and preconditions.

use std::fmt;

use bytes::Bytes;
use prombus_proto::Timestamp;
use prombus_proto::limits::MAX_STATE_KEY_BYTES;
use thiserror::Error;

/// A state key: 1 to [`MAX_STATE_KEY_BYTES`] arbitrary bytes, in byte order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateKey(Bytes);

/// A state key that is empty or longer than [`MAX_STATE_KEY_BYTES`]. Carries its length in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a state key must be 1 to {MAX_STATE_KEY_BYTES} bytes long; this one has {0}")]
pub struct InvalidStateKey(pub usize);

/// A key with its value and metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// The key that was put.
    pub key: StateKey,
    /// The value that was put, which may be empty.
    pub value: Bytes,
    /// The version of the commit that put the value.
    pub version: Version,
    /// From when on the value counts as absent; `None` never expires.
    pub expires_at: Option<Timestamp>,
}

/// Identifies the commit that put a value. Increases from commit to commit and is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// A precondition on the current value of a key. An expired value counts as absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Always holds.
    #[default]
    Any,
    /// The key has no value.
    Absent,
    /// The key's value has this version.
    Version(Version),
}

impl Expect {
    /// Returns `true` if the precondition holds for the current version `actual`; `None` is absent.
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
    /// Creates a key.
    ///
    /// # Errors
    ///
    /// [`InvalidStateKey`] if `key` is empty or longer than [`MAX_STATE_KEY_BYTES`].
    pub fn new(key: impl Into<Bytes>) -> Result<Self, InvalidStateKey> {
        let key = key.into();
        if key.is_empty() || key.len() > MAX_STATE_KEY_BYTES {
            return Err(InvalidStateKey(key.len()));
        }
        Ok(Self(key))
    }

    /// Returns the key as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl StateEntry {
    /// Returns `true` if the value has expired at `now`.
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
