//! Which layout a database has.

use mongodb::bson::doc;

use crate::MongoError;
use crate::layout::collections::Collections;

/// The present one; raised with every change that older programs cannot read.
///
/// 2: events of topics with `ttlMs` go by themselves. An older program takes that for damage.
pub(crate) const LAYOUT: i64 = 2;

const NOTE: &str = "layout";

/// What is noted; nothing in a new database.
pub(crate) async fn noted(collections: &Collections) -> Result<Option<i64>, MongoError> {
    let note = collections.engine().find_one(doc! { "_id": NOTE }).await?;
    let Some(note) = note else { return Ok(None) };
    match note.get_i64("version") {
        Ok(version) if version > LAYOUT => {
            Err(MongoError::NewerLayout { found: version, supported: LAYOUT })
        }
        Ok(version) => Ok(Some(version)),
        Err(_) => Err(MongoError::Other("the note of the layout has no version".into())),
    }
}

/// Notes that a database has the present layout now, where it had `before`.
pub(crate) async fn note(collections: &Collections, before: Option<i64>) -> Result<(), MongoError> {
    let engine = collections.engine();
    match before {
        None => {
            let change = doc! { "$setOnInsert": { "version": LAYOUT } };
            engine.update_one(doc! { "_id": NOTE }, change).upsert(true).await?;
        }
        Some(before) => {
            let change = doc! { "$set": { "version": LAYOUT } };
            engine.update_one(doc! { "_id": NOTE, "version": before }, change).await?;
        }
    }
    Ok(())
}
