//! The error type of the bus.

use std::time::Duration;

use prombus_engine::{CommitError, Damaged, ReadError};
use prombus_proto::{ErrorCode, Group, Topic};
use thiserror::Error;

use crate::topics::DamagedRange;

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

    pub(crate) fn unknown_group(topic: &Topic, group: &Group) -> Self {
        Self::new(ErrorCode::UnknownGroup, format!("{topic} has no group {group}"))
    }

    #[must_use]
    pub fn not_subscribed() -> Self {
        let message = "this connection does not subscribe to that topic and group";
        Self::new(ErrorCode::NotSubscribed, message)
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Damaged(damaged) => damaged.into(),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged(damaged) => damaged.into(),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

/// Only the log names the file: its path does not concern a client.
impl From<Damaged> for Refusal {
    fn from(damaged: Damaged) -> Self {
        tracing::warn!("{damaged}");
        match damaged {
            Damaged::Events { topic, first, last, .. } => {
                DamagedRange { first, last }.refusal(&topic)
            }
            Damaged::State(_) => {
                Self::new(ErrorCode::Internal, "the keyed state is damaged; see the server's log")
            }
        }
    }
}
