//! Topic and group names.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::limits::MAX_NAME_BYTES;

/// A string that is not a valid topic or group name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidName {
    /// The empty string.
    #[error("a name must not be empty")]
    Empty,
    /// Longer than [`MAX_NAME_BYTES`]. Carries the length in bytes.
    #[error("a name must be at most {MAX_NAME_BYTES} bytes long; this one has {0}")]
    TooLong(usize),
    /// A leading, trailing or doubled dot.
    #[error("a name must not have empty segments (a leading, trailing or doubled dot)")]
    EmptySegment,
    /// A character other than lower-case letters, digits, `_`, `-` and dots.
    #[error("a name may only contain a-z, 0-9, '_', '-' and '.', not {0:?}")]
    BadCharacter(char),
}

fn check(name: &str) -> Result<(), InvalidName> {
    if is_name(name.as_bytes()) { Ok(()) } else { check_with_reason(name) }
}

/// Checks everything in one pass: every frame has one or two names.
fn is_name(name: &[u8]) -> bool {
    let mut is_in_segment = false;
    for byte in name {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => is_in_segment = true,
            b'.' if is_in_segment => is_in_segment = false,
            _ => return false,
        }
    }
    is_in_segment && name.len() <= MAX_NAME_BYTES
}

fn check_with_reason(name: &str) -> Result<(), InvalidName> {
    if name.is_empty() {
        return Err(InvalidName::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(InvalidName::TooLong(name.len()));
    }
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-' | '.');
    if let Some(bad) = name.chars().find(|&c| !allowed(c)) {
        return Err(InvalidName::BadCharacter(bad));
    }
    if name.split('.').any(str::is_empty) {
        return Err(InvalidName::EmptySegment);
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        ///
        /// Segments of lower-case letters, digits, `_` and `-`, separated by dots; at most
        /// [`MAX_NAME_BYTES`] bytes. Cheap to clone.
        #[derive(Clone, Eq, PartialOrd, Ord)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Creates a name.
            ///
            /// Each thread caches its last name, because consecutive frames usually repeat it.
            ///
            /// # Errors
            ///
            /// [`InvalidName`] says which rule `name` violates.
            pub fn new(name: &str) -> Result<Self, InvalidName> {
                thread_local! {
                    static LAST: RefCell<Option<$type>> = const { RefCell::new(None) };
                }
                LAST.with_borrow_mut(|last| match last {
                    Some(last) if last.as_str() == name => Ok(last.clone()),
                    _ => {
                        check(name)?;
                        Ok(last.insert(Self(Arc::from(name))).clone())
                    }
                })
            }

            /// Returns a copy with its own reference count, so that clones of it on another thread do
            /// not contend for this one.
            #[must_use]
            pub fn unshared(&self) -> Self {
                Self(Arc::from(self.as_str()))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                // Most comparisons are between clones.
                Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
            }
        }

        impl std::hash::Hash for $type {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;
            fn from_str(name: &str) -> Result<Self, InvalidName> {
                Self::new(name)
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&name).map_err(serde::de::Error::custom)
            }
        }
    };
}

name_type! {
    /// The name of a topic: one ordered log of events.
    Topic
}

name_type! {
    /// The name of a durable consumer group on a topic.
    Group
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepts_dotted_lower_case() {
        for good in ["a", "heartbeat.received", "a-b_c.0", &"x".repeat(MAX_NAME_BYTES)] {
            assert_eq!(Topic::new(good).unwrap().as_str(), good);
            assert_eq!(Group::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn refuses_invalid_names_with_the_reason() {
        assert_eq!(Topic::new(""), Err(InvalidName::Empty));
        assert_eq!(Topic::new(&"x".repeat(201)), Err(InvalidName::TooLong(201)));
        for bad in [".a", "a.", "a..b", "."] {
            assert_eq!(Topic::new(bad), Err(InvalidName::EmptySegment), "{bad}");
        }
        for (bad, character) in [("A", 'A'), ("a b", ' '), ("a/b", '/'), ("é", 'é'), ("a\0", '\0')]
        {
            assert_eq!(Topic::new(bad), Err(InvalidName::BadCharacter(character)), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_fast_check_agrees_with_the_detailed_one(name in "[a-c._-]{0,6}|\\PC{0,4}|a{195,205}") {
            prop_assert_eq!(is_name(name.as_bytes()), check_with_reason(&name).is_ok());
        }
    }

    #[test]
    fn deserialising_validates_the_name() {
        assert_eq!(serde_json::from_str::<Topic>("\"a.b\"").unwrap(), Topic::new("a.b").unwrap());
        assert!(serde_json::from_str::<Topic>("\"A\"").is_err());
    }

    proptest! {
        #[test]
        fn every_name_is_a_safe_file_name(text in "\\PC{0,30}|[a-z0-9_.-]{0,30}") {
            if let Ok(topic) = Topic::new(&text) {
                prop_assert!(!topic.as_str().contains('/'));
                prop_assert!(topic.as_str() != "." && topic.as_str() != "..");
            }
        }
    }
}
