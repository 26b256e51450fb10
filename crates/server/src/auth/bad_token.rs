//! Why a token is rejected.

use prombus_proto::ErrorCode;
use thiserror::Error;

/// Safe to show to the client: reveals nothing about the token or the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadToken {
    /// Neither a configured token nor shaped like a signed one.
    #[error("unknown token")]
    Unknown,
    /// Shaped like a signed token, but malformed or with an unsupported algorithm.
    #[error("the token is malformed or of an unsupported type")]
    Malformed,
    #[error("no key of the server matches the token's kid and alg")]
    UnknownKey,
    #[error("the token's signature is invalid")]
    InvalidSignature,
    #[error("the token has expired")]
    Expired,
    #[error("the token has no expiry (exp)")]
    NoExpiry,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token is from another issuer")]
    WrongIssuer,
    #[error("the token is for another audience")]
    WrongAudience,
    /// An invalid rule might have been meant to deny, so the whole token is rejected.
    #[error("the token has invalid scopes")]
    BadScopes,
}

impl BadToken {
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        ErrorCode::BadToken
    }

    /// Returns `true` if the token may be a guess: neither configured nor signed with one of the keys.
    #[must_use]
    pub const fn is_guess(self) -> bool {
        match self {
            Self::Unknown | Self::Malformed | Self::UnknownKey | Self::InvalidSignature => true,
            Self::Expired
            | Self::NoExpiry
            | Self::NotYetValid
            | Self::WrongIssuer
            | Self::WrongAudience
            | Self::BadScopes => false,
        }
    }
}
