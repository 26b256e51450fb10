//! The version of a database's layout.

use mongodb::bson::doc;

use crate::MongoError;
use crate::layout::collections::Collections;

/// The current version, raised with every change that older programs cannot read.
///
/// Version 2: the servers remove events of topics with `ttlMs`. An older program takes that for
/// damage.
pub(crate) const LAYOUT: i64 = 2;

const DOCUMENT_ID: &str = "layout";

/// Returns the recorded version; `None` for a new database.
pub(crate) async fn read(collections: &Collections) -> Result<Option<i64>, MongoError> {
    let recorded = collections.engine().find_one(doc! { "_id": DOCUMENT_ID }).await?;
    let Some(recorded) = recorded else { return Ok(None) };
    match recorded.get_i64("version") {
        Ok(version) if version > LAYOUT => {
            Err(MongoError::NewerLayout { found: version, supported: LAYOUT })
        }
        Ok(version) => Ok(Some(version)),
        Err(_) => Err(MongoError::Other(
            "the layout document in the collection engine has no version".into(),
        )),
    }
}

/// Records the current version in place of `before`.
pub(crate) async fn write(
    collections: &Collections,
    before: Option<i64>,
) -> Result<(), MongoError> {
    let engine = collections.engine();
    match before {
        None => {
            let change = doc! { "$setOnInsert": { "version": LAYOUT } };
            engine.update_one(doc! { "_id": DOCUMENT_ID }, change).upsert(true).await?;
        }
        Some(before) => {
            let change = doc! { "$set": { "version": LAYOUT } };
            engine.update_one(doc! { "_id": DOCUMENT_ID, "version": before }, change).await?;
        }
    }
    Ok(())
}
