//! The error type of the bus.

use std::time::Duration;

use prombus_engine::{CommitError, ReadError};
use prombus_proto::ErrorCode;
use thiserror::Error;

/// An error that is reported to a client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: ErrorCode,
    /// For people; not part of the contract.
    pub message: String,
    /// The earliest useful time for a retry, if it is known.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// Returns a refusal without a retry time.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
    }

    #[must_use]
    pub fn shutting_down() -> Self {
        Self::new(ErrorCode::ShuttingDown, "the server is shutting down")
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}
