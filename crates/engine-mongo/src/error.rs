//! Driver errors, classified by what can be done about them.

use std::io;
use std::sync::Arc;

use mongodb::error::{Error, ErrorKind, WriteFailure};
use prombus_engine::{CommitError, ReadError, Unavailable};
use thiserror::Error;

/// What is wrong with the database. The message says what to do about it.
///
/// A running engine reports it as the source of the [`io::Error`] in [`Unavailable::Io`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MongoError {
    #[error("not a valid mongodb:// address: {0}")]
    InvalidAddress(String),
    /// No primary was found in time.
    #[error(
        "no primary found: {0}; check that a majority of the replica set is up, that its members \
         are reachable under the names in rs.conf(), and that replicaSet= in the address is its name"
    )]
    NoPrimary(String),
    #[error("authentication failed: {0}; check user, password and authSource= in the address")]
    AuthFailed(String),
    /// The user lacks a privilege.
    #[error("not allowed: {0}; grant the user the role readWrite on the database")]
    NotAllowed(String),
    /// The deployment cannot do what this engine needs.
    #[error("{0}")]
    UnsupportedTopology(String),
    /// The database was created by a newer version of this program.
    #[error(
        "the database has layout {found}, but this program supports only up to {supported}; use a \
         newer version"
    )]
    NewerLayout { found: i64, supported: i64 },
    /// The database was created by an older version of this program.
    #[error(
        "the database has layout {found}, but this program needs {needed}; stop the gateways of the \
         older version, run prombus migrate --apply, and start again"
    )]
    OlderLayout { found: i64, needed: i64 },
    /// Unique indexes are missing or wrong on collections that contain documents.
    #[error("wrong indexes: {0}; run prombus migrate --apply")]
    WrongIndexes(String),
    /// A unique index cannot be built because of duplicates.
    #[error(
        "cannot build the index {index} on {collection} because of duplicates: {found}; \
         nothing was changed: remove the duplicates and run prombus migrate again"
    )]
    Duplicates {
        collection: String,
        index: String,
        /// Some of the duplicates.
        found: String,
    },
    /// Another process is migrating the database.
    #[error("another prombus migrate is running on this database; wait until it has finished")]
    Migrating,
    /// The migration was interrupted.
    #[error("stopped; completed work is kept, and prombus migrate --apply resumes from there")]
    Stopped,
    /// The connection broke, or an election is in progress.
    #[error("connection lost: {0}; the driver reconnects automatically")]
    Lost(String),
    /// The server's disk is full.
    #[error("no space left on the server: {0}")]
    Full(String),
    /// A commit kept losing against others until its time was up.
    #[error("gave up after {attempts} attempts: {last}")]
    Contended {
        attempts: u32,
        /// Why the last attempt failed.
        last: String,
    },
    /// Any other error of the server or the driver.
    #[error("{0}")]
    Other(String),
}

const NAMESPACE_EXISTS: i32 = 48;
const NAMESPACE_NOT_FOUND: i32 = 26;
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;
const ILLEGAL_OPERATION: i32 = 20;
pub(crate) const DUPLICATE_KEY: i32 = 11_000;
const OUT_OF_DISK_SPACE: i32 = 14_031;
/// `NotWritablePrimary`, `NotPrimaryNoSecondaryOk`, `PrimarySteppedDown`.
const NO_PRIMARY: [i32; 3] = [10_107, 13_435, 189];

impl MongoError {
    fn kind(&self) -> io::ErrorKind {
        match self {
            MongoError::InvalidAddress(_) => io::ErrorKind::InvalidInput,
            MongoError::NoPrimary(_) => io::ErrorKind::NotConnected,
            MongoError::AuthFailed(_) | MongoError::NotAllowed(_) => {
                io::ErrorKind::PermissionDenied
            }
            MongoError::UnsupportedTopology(_)
            | MongoError::NewerLayout { .. }
            | MongoError::OlderLayout { .. }
            | MongoError::WrongIndexes(_) => io::ErrorKind::Unsupported,
            MongoError::Duplicates { .. } => io::ErrorKind::AlreadyExists,
            MongoError::Migrating => io::ErrorKind::ResourceBusy,
            MongoError::Stopped => io::ErrorKind::Interrupted,
            MongoError::Lost(_) => io::ErrorKind::ConnectionAborted,
            MongoError::Full(_) => io::ErrorKind::StorageFull,
            MongoError::Contended { .. } => io::ErrorKind::TimedOut,
            MongoError::Other(_) => io::ErrorKind::Other,
        }
    }
}

impl From<Error> for MongoError {
    fn from(error: Error) -> Self {
        let message = message_of(&error);
        match (code_of(&error), error.kind.as_ref()) {
            (Some(AUTHENTICATION_FAILED), _) | (_, ErrorKind::Authentication { .. }) => {
                MongoError::AuthFailed(message)
            }
            // The client sent no credentials at all.
            (Some(UNAUTHORIZED), _) if message.contains("requires authentication") => {
                MongoError::AuthFailed(message)
            }
            (Some(UNAUTHORIZED), _) => MongoError::NotAllowed(message),
            (Some(OUT_OF_DISK_SPACE), _) => MongoError::Full(message),
            (Some(ILLEGAL_OPERATION), _) if message.contains("replica set") => {
                MongoError::UnsupportedTopology(format!(
                    "{message}; transactions need a replica set, and a single member is enough"
                ))
            }
            (Some(code), _) if NO_PRIMARY.contains(&code) => MongoError::NoPrimary(message),
            // A server that rejects the password is never selected; only the message says why.
            (_, ErrorKind::ServerSelection { .. }) if message.contains("Authentication failed") => {
                MongoError::AuthFailed(message)
            }
            (_, ErrorKind::ServerSelection { .. }) => MongoError::NoPrimary(message),
            (_, ErrorKind::IncompatibleServer { .. } | ErrorKind::SessionsNotSupported) => {
                MongoError::UnsupportedTopology(message)
            }
            (_, ErrorKind::InvalidArgument { .. } | ErrorKind::DnsResolve { .. }) => {
                MongoError::InvalidAddress(message)
            }
            (_, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }) => {
                MongoError::Lost(message)
            }
            _ => MongoError::Other(message),
        }
    }
}

/// The server's message, without the labels and backtraces that the driver adds.
fn message_of(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => command.message.clone(),
        ErrorKind::Write(WriteFailure::WriteError(write)) => write.message.clone(),
        kind => kind.to_string(),
    }
}

fn code_of(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        ErrorKind::InsertMany(many) => {
            many.write_errors.as_ref().and_then(|errors| errors.first()).map(|first| first.code)
        }
        _ => None,
    }
}

pub(crate) fn is_duplicate_key(error: &Error) -> bool {
    code_of(error) == Some(DUPLICATE_KEY)
}

pub(crate) fn is_namespace_exists(error: &Error) -> bool {
    code_of(error) == Some(NAMESPACE_EXISTS)
}

pub(crate) fn is_namespace_not_found(error: &Error) -> bool {
    code_of(error) == Some(NAMESPACE_NOT_FOUND)
}

impl From<MongoError> for Unavailable {
    fn from(error: MongoError) -> Self {
        let source = Arc::new(io::Error::new(error.kind(), error));
        Unavailable::Io { context: "mongodb".into(), source }
    }
}

pub(crate) fn commit_error(error: Error) -> CommitError {
    match MongoError::from(error) {
        MongoError::Full(message) => CommitError::Full(message),
        error => CommitError::Unavailable(error.into()),
    }
}

pub(crate) fn read_error(error: Error) -> ReadError {
    ReadError::Unavailable(MongoError::from(error).into())
}
