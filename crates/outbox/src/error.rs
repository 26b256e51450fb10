//! Why a worker cannot go on.

use mongodb::error::Error;
use prombus_engine_mongo::MongoError;
use thiserror::Error;

/// Why a worker did not start, or ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutboxError {
    /// The database, and what to do about it.
    #[error("the outbox: {0}")]
    Mongo(#[from] MongoError),
    /// Neither the address nor anything else names a database.
    #[error(
        "the address names no database: put it behind the servers, as in mongodb://db/shop, or name it"
    )]
    NoDatabase,
    /// The bus does not want this worker, whatever it publishes.
    #[error("the bus: {0}")]
    Bus(prombus_client::Error),
}

impl From<Error> for OutboxError {
    fn from(error: Error) -> Self {
        OutboxError::Mongo(error.into())
    }
}

/// Whether the same may succeed later without anybody doing anything about it.
pub(crate) const fn may_pass(error: &MongoError) -> bool {
    !matches!(
        error,
        MongoError::InvalidAddress(_)
            | MongoError::AuthFailed(_)
            | MongoError::NotAllowed(_)
            | MongoError::UnsupportedTopology(_)
            | MongoError::NewerLayout { .. }
    )
}
