//! Builds missing indexes and replaces wrong ones. The servers build them while documents are
//! written.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};

use super::Report;
use crate::MongoError;
use crate::error::is_duplicate_key;
use crate::layout::indexes::{self, Index, IndexProblem};
use crate::store::Store;

const REPORT_INTERVAL: Duration = Duration::from_millis(500);
const MAX_REPORTED_DUPLICATES: i64 = 5;

pub(super) async fn build(
    store: &Store,
    problem: &IndexProblem,
    documents: u64,
    report: Report<'_>,
) -> Result<(), MongoError> {
    let (collection, expected) = (problem.collection(), problem.expected());
    if let IndexProblem::Different { name, .. } = problem {
        // Before the existing index is dropped.
        if expected.is_unique {
            check_duplicates(store, collection, expected).await?;
        }
        let drop = doc! { "dropIndexes": collection, "index": name };
        store.collections.database().run_command(drop).await?;
    }
    let build = indexes::create(store.collections.database(), collection, expected);
    tokio::pin!(build);
    let built = loop {
        tokio::select! {
            built = &mut build => break built,
            () = tokio::time::sleep(REPORT_INTERVAL) => {
                let (done, total) = progress(store, collection).await.unwrap_or((0, documents));
                report(done, total)?;
            }
        }
    };
    match built {
        Err(error) if is_duplicate_key(&error) => {
            check_duplicates(store, collection, expected).await?;
            Err(error.into())
        }
        built => Ok(built?),
    }
}

/// Returns the documents done and the total of a running build; `None` if this user may not ask.
async fn progress(store: &Store, collection: &str) -> Option<(u64, u64)> {
    let build = doc! { "command.createIndexes": collection, "progress": { "$exists": true } };
    let admin = store.client.database("admin");
    let mut found =
        admin.aggregate([doc! { "$currentOp": {} }, doc! { "$match": build }]).await.ok()?;
    if !found.advance().await.ok()? {
        return None;
    }
    let operation = found.deserialize_current().ok()?;
    let progress = operation.get_document("progress").ok()?;
    let number = |name| match progress.get(name)? {
        Bson::Int32(number) => u64::try_from(*number).ok(),
        Bson::Int64(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    Some((number("done")?, number("total")?))
}

/// Fails if documents collide in the unique index `expected`, and names some of them.
async fn check_duplicates(
    store: &Store,
    collection: &str,
    expected: &Index,
) -> Result<(), MongoError> {
    let group: Document =
        expected.keys.keys().map(|key| (key.clone(), Bson::from(format!("${key}")))).collect();
    let documents = store.collections.database().collection::<Document>(collection);
    let mut found = documents
        .aggregate([
            doc! { "$group": { "_id": group, "times": { "$sum": 1 } } },
            doc! { "$match": { "times": { "$gt": 1 } } },
            doc! { "$limit": MAX_REPORTED_DUPLICATES },
        ])
        .allow_disk_use(true)
        .await?;
    let mut duplicates = Vec::new();
    while found.advance().await? {
        let duplicate = found.deserialize_current()?;
        let times = duplicate.get("times").map(ToString::to_string).unwrap_or_default();
        let keys = duplicate.get("_id").map(ToString::to_string).unwrap_or_default();
        duplicates.push(format!("{keys} {times} times"));
    }
    match duplicates.is_empty() {
        true => Ok(()),
        false => Err(MongoError::Duplicates {
            collection: collection.to_owned(),
            index: expected.to_string(),
            found: duplicates.join(", "),
        }),
    }
}
