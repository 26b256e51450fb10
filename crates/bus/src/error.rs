//! What the bus refuses, and why.

use std::time::Duration;

use prombus_engine::{CommitError, ReadError};
use prombus_proto::ErrorCode;
use thiserror::Error;

/// A refusal, as every wire says it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// The stable code.
    pub code: ErrorCode,
    /// What is wrong, for people.
    pub message: String,
    /// When trying again can help, if that is known.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal with nothing known about a better time.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
    }

    /// The server is about to stop.
    #[must_use]
    pub fn shutting_down() -> Self {
        Self::new(ErrorCode::ShuttingDown, "the server is about to stop")
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
