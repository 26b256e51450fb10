//! Event keys.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::limits::MAX_KEY_BYTES;

/// A string that is empty or longer than [`MAX_KEY_BYTES`]. Carries the length in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a key must be 1 to {MAX_KEY_BYTES} bytes long; this one has {0}")]
pub struct InvalidKey(pub usize);

/// Names the entity that an event is about. Partitions keep the order per key, and projections keep
/// the latest event per key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// Creates a key.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`] if `key` is empty or longer than [`MAX_KEY_BYTES`].
    pub fn new(key: &str) -> Result<Self, InvalidKey> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(InvalidKey(key.len()));
        }
        Ok(Self(key.into()))
    }

    /// Returns the key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&key).map_err(serde::de::Error::custom)
    }
}
