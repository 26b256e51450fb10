//! Strings that must not be logged.

use std::fmt;

/// Printed instead of a secret.
pub const REDACTED: &str = "<redacted>";

/// A token or a shared secret. Its `Debug` output reveals nothing, not even the length.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}
