//! What the driver says, as something that can be acted on.

use std::io;
use std::sync::Arc;

use mongodb::error::{Error, ErrorKind, WriteFailure};
use prombus_engine::{CommitError, ReadError, Unavailable};
use thiserror::Error;

/// What is wrong with the database, and what to do about it.
///
/// A running engine gives it as the source of the [`io::Error`] in [`Unavailable::Io`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MongoError {
    /// The address cannot be used.
    #[error("not a usable mongodb:// address: {0}")]
    InvalidAddress(String),
    /// No server that takes writes was found in time.
    #[error(
        "no primary found: {0}; check that a majority of the replica set is up, that its members \
         can be reached under the names in rs.conf(), and that replicaSet= in the address is theirs"
    )]
    NoPrimary(String),
    /// The user or the password is wrong.
    #[error("authentication failed: {0}; check user, password and authSource= in the address")]
    AuthFailed(String),
    /// The user may not do this.
    #[error("not allowed: {0}; the user needs the role readWrite on the database")]
    NotAllowed(String),
    /// What is there cannot do what this engine needs.
    #[error("{0}")]
    UnsupportedTopology(String),
    /// The database was made by a newer version of this program.
    #[error(
        "the database has layout {found}; this program reads up to {supported}: use a newer one"
    )]
    NewerLayout {
        /// The layout it has.
        found: i64,
        /// The newest layout this program knows.
        supported: i64,
    },
    /// The database was made by an older version of this program.
    #[error(
        "the database has layout {found}; this program needs {needed}: stop the gateways of the older \
         version, run prombus migrate --apply, and start again"
    )]
    OlderLayout {
        /// The layout it has.
        found: i64,
        /// The layout it has to have.
        needed: i64,
    },
    /// Indexes that keep doubles out are missing, of collections that hold documents.
    #[error("indexes are not as they have to be: {0}; run prombus migrate --apply")]
    WrongIndexes(String),
    /// A unique index cannot be built.
    #[error(
        "{collection} cannot have the unique index {index}, for there are doubles: {found}; nothing \
         was changed: remove those that should not be there, and run prombus migrate again"
    )]
    Duplicates {
        /// The collection.
        collection: String,
        /// The index.
        index: String,
        /// Some of the doubles.
        found: String,
    },
    /// Somebody else migrates the database.
    #[error("another prombus migrate is at work on this database: wait until it is done")]
    Migrating,
    /// It was asked to stop.
    #[error("stopped; what was done stays done, and prombus migrate --apply goes on from there")]
    Stopped,
    /// The connection broke, or an election is under way.
    #[error("the connection was lost: {0}; it is made again by itself")]
    Lost(String),
    /// The server has no room left.
    #[error("no room left on the server: {0}")]
    Full(String),
    /// It was tried for too long while others kept being first.
    #[error("given up after {attempts} attempts: {last}")]
    Contended {
        /// How often it was tried.
        attempts: u32,
        /// What stopped the last one.
        last: String,
    },
    /// Anything else the server or the driver said.
    #[error("{0}")]
    Other(String),
}

const THERE_ALREADY: i32 = 48;
const NO_SUCH_COLLECTION: i32 = 26;
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;
const ILLEGAL_OPERATION: i32 = 20;
const DUPLICATE_KEY: i32 = 11_000;
const OUT_OF_DISK_SPACE: i32 = 14_031;
/// Not primary, not primary and secondaries are not asked, primary stepped down.
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
        let text = said(&error);
        match (code_of(&error), error.kind.as_ref()) {
            (Some(AUTHENTICATION_FAILED), _) | (_, ErrorKind::Authentication { .. }) => {
                MongoError::AuthFailed(text)
            }
            // Nobody said who it is.
            (Some(UNAUTHORIZED), _) if text.contains("requires authentication") => {
                MongoError::AuthFailed(text)
            }
            (Some(UNAUTHORIZED), _) => MongoError::NotAllowed(text),
            (Some(OUT_OF_DISK_SPACE), _) => MongoError::Full(text),
            (Some(ILLEGAL_OPERATION), _) if text.contains("replica set") => {
                MongoError::UnsupportedTopology(format!(
                    "{text}; transactions need a replica set, one of a single member suffices"
                ))
            }
            (Some(code), _) if NO_PRIMARY.contains(&code) => MongoError::NoPrimary(text),
            // A server that refuses the password is never selected; the reason is in the text.
            (_, ErrorKind::ServerSelection { .. }) if text.contains("Authentication failed") => {
                MongoError::AuthFailed(text)
            }
            (_, ErrorKind::ServerSelection { .. }) => MongoError::NoPrimary(text),
            (_, ErrorKind::IncompatibleServer { .. } | ErrorKind::SessionsNotSupported) => {
                MongoError::UnsupportedTopology(text)
            }
            (_, ErrorKind::InvalidArgument { .. } | ErrorKind::DnsResolve { .. }) => {
                MongoError::InvalidAddress(text)
            }
            (_, ErrorKind::Io(_) | ErrorKind::ConnectionPoolCleared { .. }) => {
                MongoError::Lost(text)
            }
            _ => MongoError::Other(text),
        }
    }
}

/// What it says, without the labels and stacks of the driver.
fn said(error: &Error) -> String {
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
            let of_events = many.write_errors.as_ref().and_then(|all| all.first());
            of_events.map(|first| first.code)
        }
        _ => None,
    }
}

/// Whether something unique was there already.
pub(crate) fn is_duplicate_key(error: &Error) -> bool {
    code_of(error) == Some(DUPLICATE_KEY)
}

/// Whether a collection was there already.
pub(crate) fn is_there_already(error: &Error) -> bool {
    code_of(error) == Some(THERE_ALREADY)
}

/// Whether nothing was ever put there.
pub(crate) fn is_no_such_collection(error: &Error) -> bool {
    code_of(error) == Some(NO_SUCH_COLLECTION)
}

impl From<MongoError> for Unavailable {
    fn from(error: MongoError) -> Self {
        let source = Arc::new(io::Error::new(error.kind(), error));
        Unavailable::Io { context: "mongodb".into(), source }
    }
}

/// As an answer to a commit.
pub(crate) fn of_commit(error: Error) -> CommitError {
    match MongoError::from(error) {
        MongoError::Full(said) => CommitError::Full(said),
        error => CommitError::Unavailable(error.into()),
    }
}

/// As an answer to a question.
pub(crate) fn of_read(error: Error) -> ReadError {
    ReadError::Unavailable(MongoError::from(error).into())
}
