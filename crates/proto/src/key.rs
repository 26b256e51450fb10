//! The key of an event.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::limits::MAX_KEY_BYTES;

/// Why a string is no key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a key has 1 to {MAX_KEY_BYTES} bytes, this one has {0}")]
pub struct InvalidKey(pub usize);

/// What an event is about: the unit of order for partitions and of replacement for projections.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<str>);

impl Key {
    /// The key, if its length allows.
    pub fn new(key: &str) -> Result<Self, InvalidKey> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(InvalidKey(key.len()));
        }
        Ok(Self(key.into()))
    }

    /// The key as text.
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
