//! AUTH: who this connection is.

use std::fmt;

use super::error::FrameError;
use super::{Members, field, write};

/// AUTH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// What proves it.
    pub token: Token,
}

/// A secret. Shows itself only when asked by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A secret that is `text`.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret itself.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Auth {
    pub(super) fn read(members: &Members<'_>) -> Result<Self, FrameError> {
        let token = field::required_text("token", members.token)?;
        Ok(Self { token: Token(token.into_owned()) })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        write::member(out, "token");
        write::text(out, &self.token.0);
    }
}
