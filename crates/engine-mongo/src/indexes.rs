//! The indexes. Made when an engine opens; those that are there already stay.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{IndexOptions, WriteConcern};
use mongodb::{Database, IndexModel};

use crate::collections::{CURSORS, DEDUPE, EVENTS, OUTBOX, PARTS, STATE};

fn index(keys: Document) -> IndexModel {
    IndexModel::builder().keys(keys).build()
}

fn unique(keys: Document) -> IndexModel {
    let options = IndexOptions::builder().unique(true).build();
    IndexModel::builder().keys(keys).options(options).build()
}

/// Documents go by themselves some time after the moment that `field` says.
fn ending(field: &str) -> IndexModel {
    let options = IndexOptions::builder().expire_after(Duration::ZERO).build();
    IndexModel::builder().keys(doc! { field: 1 }).options(options).build()
}

fn sparse(keys: Document) -> IndexModel {
    let options = IndexOptions::builder().sparse(true).build();
    IndexModel::builder().keys(keys).options(options).build()
}

/// Which collections there are, and by what they are searched besides their `_id`.
pub(crate) fn all() -> [(&'static str, Vec<IndexModel>); 6] {
    [
        (
            EVENTS,
            vec![
                unique(doc! { "topic": 1, "seq": 1 }),
                unique(doc! { "topic": 1, "id": 1 }),
                index(doc! { "topic": 1, "ts": 1, "id": 1 }),
                index(doc! { "topic": 1, "key": 1, "ts": 1 }),
            ],
        ),
        (PARTS, vec![unique(doc! { "topic": 1, "seq": 1, "part": 1 })]),
        (CURSORS, vec![sparse(doc! { "key": 1 })]),
        (DEDUPE, vec![ending("expireAt")]),
        (OUTBOX, vec![index(doc! { "status": 1, "lease_until": 1 }), index(doc! { "ts": 1 })]),
        // Swept by the engine, by its own clock: values here are looked at by nobody else.
        (STATE, vec![sparse(doc! { "expireAt": 1 })]),
    ]
}

/// Makes what is missing of them.
pub(crate) async fn make(database: &Database) -> Result<(), mongodb::error::Error> {
    for (collection, indexes) in all() {
        database
            .collection::<Document>(collection)
            .create_indexes(indexes)
            .write_concern(WriteConcern::majority())
            .await?;
    }
    Ok(())
}
