//! Why a token is refused.

use prombus_proto::ErrorCode;
use thiserror::Error;

/// Safe to show to the client: says nothing of the token itself or of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadToken {
    /// Neither a configured token nor a signed one.
    #[error("unknown token")]
    Unknown,
    /// Looks signed, but cannot be read as such, or with an algorithm nobody should use.
    #[error("the token is damaged, or of a kind this server does not read")]
    Unreadable,
    /// No configured key is meant for it.
    #[error("the server has no key of the token's kid and alg")]
    UnknownKey,
    /// Signed with another key, or changed since.
    #[error("the token's signature is wrong")]
    WrongSignature,
    /// Over.
    #[error("the token has expired")]
    Expired,
    /// Used too early.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// From somebody else.
    #[error("the token is of another issuer")]
    WrongIssuer,
    /// For somebody else.
    #[error("the token is for another audience")]
    WrongAudience,
    /// A rule that cannot be read might be a denial, so nothing is granted.
    #[error("the token has scopes that cannot be read")]
    BadScopes,
}

impl BadToken {
    /// As every wire says it.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        ErrorCode::BadToken
    }
}
