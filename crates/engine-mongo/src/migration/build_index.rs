//! Indexes that are missing or not as they have to be.
//!
//! The servers build them while documents are written.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::Report;
use crate::MongoError;
use crate::error::is_duplicate_key;
use crate::layout::indexes::{self, Flaw, Index};
use crate::store::Store;

const REPORTED_EVERY: Duration = Duration::from_millis(500);
const DOUBLES_NAMED: i64 = 5;

pub(super) async fn mend(
    store: &Store,
    flaw: &Flaw,
    documents: u64,
    report: Report<'_>,
) -> Result<(), MongoError> {
    let (collection, due) = (flaw.collection(), flaw.due());
    if let Flaw::Different { name, .. } = flaw {
        // Before the one that is there goes.
        if due.is_unique {
            no_doubles(store, collection, due).await?;
        }
        let drop = doc! { "dropIndexes": collection, "index": name };
        store.collections.database().run_command(drop).await?;
    }
    let build = indexes::make(store.collections.database(), collection, due);
    tokio::pin!(build);
    let built = loop {
        tokio::select! {
            built = &mut build => break built,
            () = tokio::time::sleep(REPORTED_EVERY) => {
                let (done, total) = progress(store, collection).await.unwrap_or((0, documents));
                report(done, total)?;
            }
        }
    };
    match built {
        Err(error) if is_duplicate_key(&error) => {
            no_doubles(store, collection, due).await?;
            Err(error.into())
        }
        built => Ok(built?),
    }
}

/// How far a build is, where this user may ask.
async fn progress(store: &Store, collection: &str) -> Option<(u64, u64)> {
    let build = doc! { "command.createIndexes": collection, "progress": { "$exists": true } };
    let admin = store.client.database("admin");
    let mut found =
        admin.aggregate([doc! { "$currentOp": {} }, doc! { "$match": build }]).await.ok()?;
    if !found.advance().await.ok()? {
        return None;
    }
    let said = found.deserialize_current().ok()?;
    let progress = said.get_document("progress").ok()?;
    let number = |name| match progress.get(name)? {
        Bson::Int32(number) => u64::try_from(*number).ok(),
        Bson::Int64(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    Some((number("done")?, number("total")?))
}

/// Fails where a unique index cannot be, and names what stands in its way.
async fn no_doubles(store: &Store, collection: &str, due: &Index) -> Result<(), MongoError> {
    let group: Document =
        due.keys.keys().map(|key| (key.clone(), Bson::from(format!("${key}")))).collect();
    let documents = store.collections.database().collection::<Document>(collection);
    let mut found = documents
        .aggregate([
            doc! { "$group": { "_id": group, "times": { "$sum": 1 } } },
            doc! { "$match": { "times": { "$gt": 1 } } },
            doc! { "$limit": DOUBLES_NAMED },
        ])
        .allow_disk_use(true)
        .await?;
    let mut doubles = Vec::new();
    while found.advance().await? {
        let double = found.deserialize_current()?;
        let times = double.get("times").map(ToString::to_string).unwrap_or_default();
        let keys = double.get("_id").map(ToString::to_string).unwrap_or_default();
        doubles.push(format!("{keys} {times} times"));
    }
    match doubles.is_empty() {
        true => Ok(()),
        false => Err(MongoError::Duplicates {
            collection: collection.to_owned(),
            index: due.to_string(),
            found: doubles.join(", "),
        }),
    }
}
