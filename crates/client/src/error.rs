//! The client's errors.

use std::fmt::Display;
use std::time::Duration;

use prombus_proto::frame::EndReason;
use prombus_proto::{ErrorCode, Group, Topic};
use thiserror::Error;

use crate::DamagedRange;
use crate::transport::{AddressError, HttpFailure, WebSocketError};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused the request, or the client did with the same code before sending it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An address or a file of certificates is not valid. Retrying does not help.
    #[error("{0}")]
    BadAddress(String),
    /// The server cannot be reached, or the address is not that of a Prombus server.
    #[error("{0}")]
    NotReached(String),
    /// The connection was lost, and the request is not retried.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The server closed the connection with a permanent close code. The client has ended.
    #[error("the server closed the connection permanently: {code} {reason}")]
    Closed {
        /// The WebSocket close code; see `docs/protocol.md`.
        code: u16,
        /// The server's explanation.
        reason: String,
    },
    /// No answer arrived within the [timeout](crate::Builder::timeout). The request may have been
    /// carried out.
    #[error("timed out; the request may have been carried out")]
    TimedOut,
    /// The client was closed.
    #[error("the client is closed")]
    Ended,
    /// The server ended the subscription, because its topic or group was deleted. Events that were in flight
    /// are gone, and so is the group's progress. Subscribing again creates a new group.
    #[error("the subscription to {topic} as {group} has ended: {reason}")]
    SubscriptionEnded {
        /// The topic it subscribed to.
        topic: Topic,
        /// The consumer group it was a member of.
        group: Group,
        /// What ended it.
        reason: EndReason,
    },
    /// The event's payload is not of the requested type.
    #[error("cannot decode the event: {0}")]
    NotDecoded(String),
    /// The server sent something that the protocol does not allow here.
    #[error("unexpected data from the server: {0}")]
    NotUnderstood(String),
    /// The server cannot read the next events back. See `on_damaged` of
    /// [`ReplayBuilder`](crate::ReplayBuilder::on_damaged) to continue behind them.
    #[error("{0}")]
    Damaged(DamagedRange),
    /// Replay and export need the server's HTTP address.
    #[error("no HTTP address: set one with `Client::builder(url).http(…)`")]
    NoHttpAddress,
}

/// An error that the server reported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{code}: {msg}")]
pub struct Refusal {
    /// The stable code.
    pub code: ErrorCode,
    /// An explanation for people.
    pub msg: String,
    /// When to try again, if the server knows.
    pub retry_after: Option<Duration>,
}

/// The result of the client's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns the code of a [refusal](Error::Refused).
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Error::Refused(refusal) => Some(refusal.code),
            _ => None,
        }
    }

    /// Returns `true` if the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Error::Refused(refusal) => refusal.code.is_retryable(),
            Error::NotReached(_) | Error::Lost(_) | Error::TimedOut => true,
            _ => false,
        }
    }

    /// Returns how long the server asks to wait before the next attempt.
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
    /// Returns `true` if the rate limit never admits this many events at once. Fewer may pass.
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
                // As on the WebSocket, a code that this version does not know is internal.
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
    fn a_refusal_has_its_code_and_says_whether_to_retry() {
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
