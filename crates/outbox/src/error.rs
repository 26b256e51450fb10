//! Why a worker fails.

use mongodb::error::Error;
use prombus_engine_mongo::MongoError;
use thiserror::Error;

/// Why a worker did not start, or gave up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutboxError {
    #[error("the outbox: {0}")]
    Mongo(#[from] MongoError),
    #[error("the address names no database; append it, as in mongodb://db/shop, or pass its name")]
    NoDatabase,
    /// The bus rejects this worker, whatever it publishes.
    #[error("the bus: {0}")]
    Bus(prombus_client::Error),
}

impl From<Error> for OutboxError {
    fn from(error: Error) -> Self {
        OutboxError::Mongo(error.into())
    }
}

/// Returns `true` if the same operation may succeed later without anybody's intervention.
pub(crate) const fn is_transient(error: &MongoError) -> bool {
    !matches!(
        error,
        MongoError::InvalidAddress(_)
            | MongoError::AuthFailed(_)
            | MongoError::NotAllowed(_)
            | MongoError::UnsupportedTopology(_)
            | MongoError::NewerLayout { .. }
    )
}
