//! The indexes of the outbox. Made when a worker starts; those that are there already stay.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{IndexOptions, WriteConcern};
use mongodb::{Collection, Database, IndexModel};

/// An index of this name or of these keys is there, with other options.
const INDEX_OPTIONS_CONFLICT: i32 = 85;

/// Makes what is missing of them.
pub(crate) async fn make(outbox: &Collection<Document>) -> Result<(), Error> {
    let keys = [
        // Who looks at leases and at times, such as people and monitoring.
        doc! { "status": 1, "lease_until": 1 },
        doc! { "ts": 1 },
        // What waits, in order.
        doc! { "status": 1, "ts": 1, "_id": 1 },
        // What waits before something else of its key.
        doc! { "topic": 1, "key": 1, "status": 1, "ts": 1, "_id": 1 },
    ];
    let indexes = keys.map(|keys| IndexModel::builder().keys(keys).build());
    outbox.create_indexes(indexes).write_concern(WriteConcern::majority()).await?;
    Ok(())
}

/// Lets documents go by themselves so long after they were sent.
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
