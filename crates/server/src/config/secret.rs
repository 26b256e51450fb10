//! Text that nobody prints.

use std::fmt;

/// What stands where a secret was.
pub const REDACTED: &str = "<redacted>";

/// Text that does not show itself. It has no `==`: secrets are compared in constant time, elsewhere.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself. Not for logs, errors or printouts.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}
