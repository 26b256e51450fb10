//! What can go wrong.

use std::fmt::Display;
use std::time::Duration;

use prombus_proto::ErrorCode;
use thiserror::Error;

use crate::transport::{AddressError, HttpFailure, WebSocketError};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused it, or this client did in the server's words before it was sent.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An address or a file of certificates is wrong. Trying again does not help.
    #[error("{0}")]
    BadAddress(String),
    /// Nobody answers at the address, or somebody who is no server.
    #[error("{0}")]
    NotReached(String),
    /// The connection broke, and what was asked for is not tried again.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// The server closed the connection in a way that says not to come back. The client has ended.
    #[error("the server closed the connection for good: {code} {reason}")]
    Closed {
        /// The close code.
        code: u16,
        /// Its reason.
        reason: String,
    },
    /// No answer came in the time that was given. Whether it is done is not known.
    #[error("no answer in time; whether it is done is not known")]
    TimedOut,
    /// The client was closed.
    #[error("the client is closed")]
    Ended,
    /// An event that came is not what it was to be read as.
    #[error("the event is not of the type asked for: {0}")]
    NotDecoded(String),
    /// An answer that this client does not understand.
    #[error("not understood: {0}")]
    NotUnderstood(String),
    /// Replay and export go over HTTP, and nobody said where that is.
    #[error("no HTTP address is known: give one by `Client::builder(url).http(…)`")]
    NoHttpAddress,
}

/// A refusal, as the wire says it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{code}: {msg}")]
pub struct Refusal {
    /// The stable word.
    pub code: ErrorCode,
    /// A sentence for people.
    pub msg: String,
    /// When trying again may help, where the server says so.
    pub retry_after: Option<Duration>,
}

/// What every call answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The code on the wire, of what was refused.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Error::Refused(refusal) => Some(refusal.code),
            _ => None,
        }
    }

    /// Whether the same may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Error::Refused(refusal) => refusal.code.is_retryable(),
            Error::NotReached(_) | Error::Lost(_) | Error::TimedOut => true,
            _ => false,
        }
    }

    /// How long the server says to wait before trying again.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Refused(refusal) => refusal.retry_after,
            _ => None,
        }
    }

    pub(crate) fn refused(code: ErrorCode, msg: impl Display) -> Self {
        Error::Refused(Refusal { code, msg: msg.to_string(), retry_after: None })
    }
}

impl Refusal {
    /// Whether more was asked for at once than a limit of rate ever allows: less may pass.
    pub(crate) fn is_too_much_at_once(&self) -> bool {
        self.code == ErrorCode::RateLimited && self.retry_after.is_none()
    }

    pub(crate) fn from_wire(code: ErrorCode, msg: String, retry_after_ms: Option<u64>) -> Self {
        Self { code, msg, retry_after: retry_after_ms.map(Duration::from_millis) }
    }
}

impl From<AddressError> for Error {
    fn from(error: AddressError) -> Self {
        let text = error.to_string();
        match error {
            AddressError::Unreachable { .. } => Error::NotReached(text),
            _ => Error::BadAddress(text),
        }
    }
}

impl From<WebSocketError> for Error {
    fn from(error: WebSocketError) -> Self {
        match error {
            WebSocketError::NotReached(error) => error.into(),
            error => Error::NotReached(error.to_string()),
        }
    }
}

impl From<HttpFailure> for Error {
    fn from(failure: HttpFailure) -> Self {
        let text = failure.to_string();
        match failure {
            HttpFailure::NotReached(error) => error.into(),
            HttpFailure::NotSendable(_) => Error::BadAddress(text),
            HttpFailure::Refused { code, message, retry_after, .. } => {
                // A word that this version does not know is as on the WebSocket.
                let (code, msg) = match ErrorCode::parse(&code) {
                    Some(code) => (code, message),
                    None => (ErrorCode::Internal, format!("{code}: {message}")),
                };
                Error::Refused(Refusal { code, msg, retry_after })
            }
            HttpFailure::Foreign { .. } => Error::NotReached(text),
            HttpFailure::NotUnderstood(reason) => Error::NotUnderstood(reason),
            HttpFailure::Lost(reason) => Error::Lost(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_its_code_and_whether_trying_again_helps() {
        for code in ErrorCode::ALL {
            let refusal = Refusal::from_wire(*code, "because".to_owned(), Some(20));
            let error = Error::from(refusal);
            assert_eq!(error.code(), Some(*code));
            assert_eq!(error.is_retryable(), code.is_retryable());
            assert_eq!(error.retry_after(), Some(Duration::from_millis(20)));
            assert_eq!(error.to_string(), format!("{code}: because"));
        }
        assert_eq!(Error::Ended.code(), None);
        assert!(Error::TimedOut.is_retryable() && !Error::Ended.is_retryable());
    }
}
