//! The identity of an event.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use uuid::Uuid;

use crate::byte_search::any_byte;
use crate::limits::MAX_ID_BYTES;

/// Why a string is no event id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidEventId {
    /// Empty, or longer than [`MAX_ID_BYTES`].
    #[error("an event id has 1 to {MAX_ID_BYTES} bytes, this one has {0}")]
    Length(usize),
    /// A control character: ids travel in headers and lines.
    #[error("an event id has no control characters")]
    ControlCharacter,
}

/// The identity of an event within its topic.
///
/// The bus makes UUIDs of version 7. A client may bring any text of 1 to [`MAX_ID_BYTES`] bytes;
/// text that is a UUID in its usual form (lower-case, hyphens) is held as 16 bytes, anything else
/// as it came, so that an id always leaves as the same text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EventId(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    Uuid(Uuid),
    Text(Box<str>),
}

impl EventId {
    /// The id that `text` is.
    pub fn new(text: &str) -> Result<Self, InvalidEventId> {
        if text.is_empty() || text.len() > MAX_ID_BYTES {
            return Err(InvalidEventId::Length(text.len()));
        }
        if let Some(uuid) = canonical_uuid(text) {
            return Ok(Self(Form::Uuid(uuid)));
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidEventId::ControlCharacter);
        }
        Ok(Self(Form::Text(text.into())))
    }

    /// The id that is this UUID.
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(Form::Uuid(uuid))
    }

    /// The UUID, where the id is one.
    #[must_use]
    pub const fn as_uuid(&self) -> Option<Uuid> {
        match &self.0 {
            Form::Uuid(uuid) => Some(*uuid),
            Form::Text(_) => None,
        }
    }

    /// The whole id where it is a UUID of version 7: these rise with time.
    #[must_use]
    pub fn time_ordered(&self) -> Option<u128> {
        self.as_uuid().filter(|uuid| uuid.get_version_num() == 7).map(|uuid| uuid.as_u128())
    }

    /// The id in its shortest form: 16 bytes of a UUID, or the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Uuid(uuid) => uuid.as_bytes(),
            Form::Text(text) => text.as_bytes(),
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
            Form::Uuid(uuid) => uuid.as_hyphenated().fmt(f),
            Form::Text(text) => f.write_str(text),
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
            Form::Uuid(uuid) => serializer
                .serialize_str(uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer())),
            Form::Text(text) => serializer.serialize_str(text),
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
    fn only_the_usual_form_becomes_a_uuid() {
        let usual = "0190f5e4-8d4b-7c3a-9f2e-0123456789ab";
        assert!(EventId::new(usual).unwrap().as_uuid().is_some());
        for other in [&usual.to_uppercase(), &usual.replace('-', ""), &format!("{{{usual}}}")] {
            let id = EventId::new(other).unwrap();
            assert_eq!(id.as_uuid(), None);
            assert_eq!(&id.to_string(), other);
        }
    }

    #[test]
    fn refuses_what_is_too_long_empty_or_unprintable() {
        assert_eq!(EventId::new(""), Err(InvalidEventId::Length(0)));
        assert_eq!(EventId::new(&"x".repeat(257)), Err(InvalidEventId::Length(257)));
        assert_eq!(EventId::new("a\nb"), Err(InvalidEventId::ControlCharacter));
    }

    proptest! {
        #[test]
        fn text_in_is_text_out(text in "[0-9a-f-]{36}|\\PC{1,60}") {
            prop_assert_eq!(EventId::new(&text).unwrap().to_string(), text);
        }
    }
}
