//! AUTH: authenticates a connection.

use std::fmt;

use super::error::FrameError;
use super::{Members, field, write};

/// The AUTH operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The credential. A server without tokens does not need one.
    pub token: Option<Token>,
}

/// A credential. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Wraps `text` as a credential.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the credential in plain text.
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
        let Some(token) = field::present(members.token) else { return Ok(Self { token: None }) };
        Ok(Self { token: Some(Token(field::text("token", token)?.into_owned())) })
    }

    pub(super) fn write_members(&self, out: &mut Vec<u8>) {
        if let Some(token) = &self.token {
            write::member(out, "token");
            write::text(out, &token.0);
        }
    }
}
