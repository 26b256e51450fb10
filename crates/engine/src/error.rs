//! What can go wrong, by what was asked.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use prombus_proto::{ErrorCode, Seq, Topic};
use thiserror::Error;

use crate::{StateKey, Version};

/// Why an engine did not open. Nothing was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process uses the folder.
    #[error("{path} is in use by another process")]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// A file was written by a newer version of this program.
    #[error(
        "{path} has format version {found}; this program reads up to {supported}: use a newer one"
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u16,
        /// The newest version this program knows.
        supported: u16,
    },
    /// A file that everything else hangs on cannot be read back.
    #[error("{path} is damaged: {detail}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The operating system said no.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Why a commit was not stored.
#[derive(Clone, Debug, Error)]
pub enum CommitError {
    /// A precondition does not hold.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Something in it is larger than the store takes.
    #[error("{what} too large: {bytes}, the limit is {limit}")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },
    /// No room left. Goes on by itself when there is.
    #[error("no room left on the storage: {0}")]
    Full(String),
    /// A newer retention rule was applied already.
    #[error(
        "retention rule {offered} for {topic} is older than {applied}, which was applied already"
    )]
    StaleRule {
        /// The topic.
        topic: Topic,
        /// The revision of the refused rule.
        offered: u64,
        /// The revision applied before.
        applied: u64,
    },
    /// What it depends on cannot be read back.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The engine takes nothing now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A precondition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Conflict {
    /// The topic has another last position.
    #[error("{topic} is at {actual}, not at {expected}")]
    Last {
        /// The topic.
        topic: Topic,
        /// What the batch expected.
        expected: Seq,
        /// What is there.
        actual: Seq,
    },
    /// The key has another version, or none.
    #[error("state {key:?} has version {actual:?}")]
    State {
        /// The key.
        key: StateKey,
        /// What is there.
        actual: Option<Version>,
    },
}

/// Why nothing was read.
#[derive(Clone, Debug, Error)]
pub enum ReadError {
    /// It is there and cannot be read back.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The engine answers nothing now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Something stored that cannot be read back. It is kept as it is, never deleted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damaged {
    /// Events.
    #[error("events {first} to {last} of {topic} are damaged: {detail}")]
    Events {
        /// Their topic.
        topic: Topic,
        /// The first that cannot be read.
        first: Seq,
        /// The last that cannot be read.
        last: Seq,
        /// Where, and what is wrong.
        detail: String,
    },
    /// Keyed state.
    #[error("the keyed state is damaged: {0}")]
    State(String),
}

/// Why an engine does nothing now.
#[derive(Clone, Debug, Error)]
pub enum Unavailable {
    /// It was closed.
    #[error("the engine is closed")]
    Closed,
    /// A sync failed: what the operating system still holds is unknown, so nothing more is
    /// acknowledged until a restart has read back what is really there.
    #[error("stopped after a failed write to stable storage, restart to recover: {0}")]
    Poisoned(String),
    /// The operating system said no.
    #[error("{context}: {source}")]
    Io {
        /// What was tried.
        context: String,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// Made to fail by a test.
    #[error("injected fault: {0}")]
    Injected(&'static str),
}

impl CommitError {
    /// The code that a client sees.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            CommitError::Conflict(_) | CommitError::StaleRule { .. } => ErrorCode::Conflict,
            CommitError::TooLarge { .. } => ErrorCode::PayloadTooLarge,
            CommitError::Full(_) => ErrorCode::StorageUnavailable,
            CommitError::Damaged(_) => ErrorCode::Internal,
            CommitError::Unavailable(unavailable) => unavailable.code(),
        }
    }
}

impl ReadError {
    /// The code that a client sees.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            ReadError::Damaged(_) => ErrorCode::Internal,
            ReadError::Unavailable(unavailable) => unavailable.code(),
        }
    }
}

impl Unavailable {
    /// The code that a client sees.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Unavailable::Closed => ErrorCode::ShuttingDown,
            Unavailable::Poisoned(_) | Unavailable::Io { .. } | Unavailable::Injected(_) => {
                ErrorCode::StorageUnavailable
            }
        }
    }
}

impl From<ReadError> for CommitError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged(damaged) => CommitError::Damaged(damaged),
            ReadError::Unavailable(unavailable) => CommitError::Unavailable(unavailable),
        }
    }
}
