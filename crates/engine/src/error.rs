//! The errors of an engine, one type per kind of call.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use prombus_proto::{ErrorCode, Seq, Topic};
use thiserror::Error;

use crate::{StateKey, Version};

/// An engine could not be opened. Its files were not changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the directory open.
    #[error("{path} is in use by another process")]
    Locked {
        /// The data directory.
        path: PathBuf,
    },
    /// A file was written by a newer version of Prombus.
    #[error(
        "{path} has format version {found}, but this version of prombus reads only up to {supported}; \
         upgrade prombus"
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u16,
        /// The newest format version that this build reads.
        supported: u16,
    },
    /// A file is damaged that the engine cannot start without.
    #[error("{path} is damaged: {detail}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A backup was being restored into the directory, and that is not finished.
    #[error(
        "{path} holds an unfinished restore of a backup: run prombus restore again, or remove the folder"
    )]
    Unfinished {
        /// The data directory.
        path: PathBuf,
    },
    /// An operation of the file system failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A commit, trim or retention sweep failed.
///
/// After [`CommitError::Unavailable`] it is unknown whether the change was stored; after every other
/// error, nothing was.
#[derive(Clone, Debug, Error)]
pub enum CommitError {
    /// A precondition does not hold.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Something in the batch exceeds a limit of the store.
    #[error("{what} too large: {bytes}; the limit is {limit}")]
    TooLarge {
        /// Which limit is exceeded.
        what: &'static str,
        /// The actual size, in bytes or in events.
        bytes: usize,
        /// The limit, in the same unit.
        limit: usize,
    },
    /// The storage is full. Commits succeed again as soon as there is room.
    #[error("the storage is full: {0}")]
    Full(String),
    /// A newer retention rule was already applied to the topic.
    #[error(
        "retention rule {offered} for {topic} is older than rule {applied}, which was already applied"
    )]
    StaleRule {
        /// The topic of the rule.
        topic: Topic,
        /// The revision of the refused rule.
        offered: u64,
        /// The newest revision that was applied.
        applied: u64,
    },
    /// Stored data that the commit depends on is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The engine does not accept commits.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A precondition of a batch does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Conflict {
    /// The topic's last event is not the expected one.
    #[error("the last event of {topic} is {actual}, not {expected}")]
    Last {
        /// The topic of the precondition.
        topic: Topic,
        /// The last `seq` that the batch expected.
        expected: Seq,
        /// The topic's last `seq`.
        actual: Seq,
    },
    /// The key does not have the expected version, or is not absent as expected.
    #[error("state {key:?} has version {actual:?}")]
    State {
        /// The key of the failed precondition.
        key: StateKey,
        /// The version of the current value; `None` if the key is absent.
        actual: Option<Version>,
    },
}

/// A read failed.
#[derive(Clone, Debug, Error)]
pub enum ReadError {
    /// The data is stored, but damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The engine does not serve reads.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Stored data that cannot be read back. It is never deleted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damaged {
    /// A range of events.
    #[error("events {first} to {last} of {topic} are damaged: {detail}")]
    Events {
        /// The topic of the events.
        topic: Topic,
        /// The first damaged event.
        first: Seq,
        /// The last damaged event.
        last: Seq,
        /// The file, and what is wrong with it.
        detail: String,
    },
    /// A part of the keyed state.
    #[error("the keyed state is damaged: {0}")]
    State(String),
}

/// The engine cannot serve the call at all.
#[derive(Clone, Debug, Error)]
pub enum Unavailable {
    /// The engine was closed.
    #[error("the engine is closed")]
    Closed,
    /// An fsync failed. It is unknown which writes reached the disk, so the engine acknowledges
    /// nothing more until a restart has read back what is really there.
    #[error("stopped after a failed fsync; restart to recover: {0}")]
    Poisoned(String),
    /// An operation of the file system or of the remote store failed.
    #[error("{context}: {source}")]
    Io {
        /// The operation that failed.
        context: String,
        /// The underlying error.
        source: Arc<io::Error>,
    },
    /// A test injected this fault.
    #[error("injected fault: {0}")]
    Injected(&'static str),
}

impl CommitError {
    /// Returns the error code that a client receives.
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
    /// Returns the error code that a client receives.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            ReadError::Damaged(_) => ErrorCode::Internal,
            ReadError::Unavailable(unavailable) => unavailable.code(),
        }
    }
}

impl Unavailable {
    /// Returns the error code that a client receives.
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
