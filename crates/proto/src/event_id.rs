//! Event ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use uuid::Uuid;

use crate::byte_search::any_byte;
use crate::limits::MAX_ID_BYTES;

/// A string that is not a valid event id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidEventId {
    /// Empty, or longer than [`MAX_ID_BYTES`]. Carries the length in bytes.
    #[error("an event id must be 1 to {MAX_ID_BYTES} bytes long; this one has {0}")]
    Length(usize),
    /// Contains a control character, which would break headers and line-based formats.
    #[error("an event id must not contain control characters")]
    ControlCharacter,
}

/// The identity of an event within its topic.
///
/// The bus generates UUIDs of version 7. A client may choose any text of 1 to [`MAX_ID_BYTES`] bytes.
/// A UUID in canonical form (lower case, hyphens) is stored as 16 bytes, any other text as it is, so
/// that the text of an id never changes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EventId(Repr);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Uuid(Uuid),
    Text(Box<str>),
}

impl EventId {
    /// Creates an id from `text`.
    ///
    /// # Errors
    ///
    /// [`InvalidEventId`] if `text` is empty, too long or contains a control character.
    pub fn new(text: &str) -> Result<Self, InvalidEventId> {
        if text.is_empty() || text.len() > MAX_ID_BYTES {
            return Err(InvalidEventId::Length(text.len()));
        }
        if let Some(uuid) = canonical_uuid(text) {
            return Ok(Self(Repr::Uuid(uuid)));
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidEventId::ControlCharacter);
        }
        Ok(Self(Repr::Text(text.into())))
    }

    /// Creates an id from a UUID.
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(Repr::Uuid(uuid))
    }

    /// Returns the UUID if the id was given as one in canonical form.
    #[must_use]
    pub const fn as_uuid(&self) -> Option<Uuid> {
        match &self.0 {
            Repr::Uuid(uuid) => Some(*uuid),
            Repr::Text(_) => None,
        }
    }

    /// Returns the id as a number if it is a UUID of version 7. These numbers grow with time.
    #[must_use]
    pub fn time_ordered(&self) -> Option<u128> {
        self.as_uuid().filter(|uuid| uuid.get_version_num() == 7).map(|uuid| uuid.as_u128())
    }

    /// Returns the compact form: the 16 bytes of a UUID, or the text. A UUID and a text of 16 bytes
    /// may have the same bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Uuid(uuid) => uuid.as_bytes(),
            Repr::Text(text) => text.as_bytes(),
        }
    }
}

fn canonical_uuid(text: &str) -> Option<Uuid> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 || any_byte(bytes, |byte| byte.is_ascii_uppercase()) {
        return None;
    }
    Uuid::try_parse(text).ok()
}

impl FromStr for EventId {
    type Err = InvalidEventId;
    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        Self::new(text)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Uuid(uuid) => uuid.as_hyphenated().fmt(f),
            Repr::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Repr::Uuid(uuid) => serializer
                .serialize_str(uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer())),
            Repr::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_canonical_form_becomes_a_uuid() {
        let canonical = "0190f5e4-8d4b-7c3a-9f2e-0123456789ab";
        assert!(EventId::new(canonical).unwrap().as_uuid().is_some());
        for other in
            [&canonical.to_uppercase(), &canonical.replace('-', ""), &format!("{{{canonical}}}")]
        {
            let id = EventId::new(other).unwrap();
            assert_eq!(id.as_uuid(), None);
            assert_eq!(&id.to_string(), other);
        }
    }

    #[test]
    fn refuses_empty_overlong_and_unprintable_text() {
        assert_eq!(EventId::new(""), Err(InvalidEventId::Length(0)));
        assert_eq!(EventId::new(&"x".repeat(257)), Err(InvalidEventId::Length(257)));
        assert_eq!(EventId::new("a\nb"), Err(InvalidEventId::ControlCharacter));
    }

    proptest! {
        #[test]
        fn an_id_is_displayed_as_it_was_given(text in "[0-9a-f-]{36}|\\PC{1,60}") {
            prop_assert_eq!(EventId::new(&text).unwrap().to_string(), text);
        }
    }
}
