//! The identity of a client.

use std::sync::Arc;

/// The holder of a grant. Connections of one identity are the same client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// Any client of an open server.
    Anyone,
    /// The holder of a configured token, by the name of the token.
    Token(Arc<str>),
    /// The holder of a client certificate, by the name that the configuration lists.
    Certificate(Arc<str>),
    /// The `sub` claim of a signed token; `None` if it has none.
    Subject(Option<Arc<str>>),
}

impl Identity {
    /// Returns the name of the client, or `None` if nothing tells it from others.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Token(name) | Self::Certificate(name) | Self::Subject(Some(name)) => Some(name),
            Self::Anyone | Self::Subject(None) => None,
        }
    }

    /// Returns what vouches for the name: a token and a subject may have the same one.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Token(_) => "token",
            Self::Certificate(_) => "certificate",
            Self::Subject(_) => "jwt",
        }
    }
}
