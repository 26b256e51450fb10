//! The indexes of the outbox, created when a worker starts.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{IndexOptions, WriteConcern};
use mongodb::{Collection, Database, IndexModel};

/// An index with this name or these keys exists, with other options.
const INDEX_OPTIONS_CONFLICT: i32 = 85;

/// Creates the indexes that do not exist yet.
pub(crate) async fn create(outbox: &Collection<Document>) -> Result<(), Error> {
    let keys = [
        // For people and monitoring, which look at leases and times.
        doc! { "status": 1, "lease_until": 1 },
        doc! { "ts": 1 },
        // Pending documents in order.
        doc! { "status": 1, "ts": 1, "_id": 1 },
        // Documents before another one of their key.
        doc! { "topic": 1, "key": 1, "status": 1, "ts": 1, "_id": 1 },
    ];
    let indexes = keys.map(|keys| IndexModel::builder().keys(keys).build());
    outbox.create_indexes(indexes).write_concern(WriteConcern::majority()).await?;
    Ok(())
}

/// Lets the servers delete documents this long after they were sent.
pub(crate) async fn remove_sent_after(
    database: &Database,
    outbox: &Collection<Document>,
    time: Duration,
) -> Result<(), Error> {
    let options = IndexOptions::builder().expire_after(time).build();
    let index = IndexModel::builder().keys(doc! { "sent_at": 1 }).options(options).build();
    match outbox.create_index(index).write_concern(WriteConcern::majority()).await {
        Ok(_) => Ok(()),
        Err(error) if is_conflict(&error) => {
            let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
            let index = doc! { "keyPattern": { "sent_at": 1 }, "expireAfterSeconds": seconds };
            database.run_command(doc! { "collMod": outbox.name(), "index": index }).await?;
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == INDEX_OPTIONS_CONFLICT)
}
