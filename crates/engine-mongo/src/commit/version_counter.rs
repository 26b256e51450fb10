//! The version of every commit, counted over all gateways.

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{CollectionOptions, ReturnDocument};
use prombus_engine::{Durability, Version};

use crate::layout::collections::{ENGINE, write_concern};
use crate::layout::numbers::from_bson;
use crate::store::Store;

const COUNTER: &str = "commits";

impl Store {
    /// Returns the next version. Counts outside of the commit's transaction, so that unrelated
    /// commits do not wait for each other.
    ///
    /// Must be called after the commit has read what it builds on and before it is committed: then
    /// every commit that builds on it has a larger version. Once a majority has the commit it has
    /// the counter, too, because the counter was written before.
    pub(crate) async fn next_version(&self, durability: Durability) -> Result<Version, Error> {
        let options = CollectionOptions::builder().write_concern(write_concern(durability)).build();
        let counter = self
            .collections
            .database()
            .collection_with_options::<Document>(ENGINE, options)
            .find_one_and_update(doc! { "_id": COUNTER }, doc! { "$inc": { "last": 1_i64 } })
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?;
        match counter.and_then(|counter| counter.get_i64("last").ok()) {
            Some(last) => Ok(Version(from_bson(last))),
            None => Err(Error::from(ErrorKind::Custom(std::sync::Arc::new(
                "the commit counter in the collection engine is not an integer",
            )))),
        }
    }
}
