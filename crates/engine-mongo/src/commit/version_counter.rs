//! The number of every commit, over all gateways.

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{CollectionOptions, ReturnDocument};
use prombus_engine::{Durability, Version};

use crate::layout::collections::{ENGINE, write_concern};
use crate::layout::numbers::from_bson;
use crate::store::Store;

const COUNTER: &str = "commits";

impl Store {
    /// The next number. Outside of the commit's transaction, so that commits that have nothing to do
    /// with each other do not wait for each other.
    ///
    /// It has to be asked for when the commit has seen what it builds on, and before it is made: then
    /// whoever builds on it has a larger one. A commit that a majority has makes its number as safe:
    /// the number was given before.
    pub(crate) async fn next_version(&self, durability: Durability) -> Result<Version, Error> {
        let options = CollectionOptions::builder().write_concern(write_concern(durability)).build();
        let counted = self
            .collections
            .database()
            .collection_with_options::<Document>(ENGINE, options)
            .find_one_and_update(doc! { "_id": COUNTER }, doc! { "$inc": { "last": 1_i64 } })
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await?;
        let last = counted.and_then(|counter| counter.get_i64("last").ok());
        match last {
            Some(last) => Ok(Version(from_bson(last))),
            None => Err(Error::from(ErrorKind::Custom(std::sync::Arc::new(
                "the number of commits in the collection engine is no number",
            )))),
        }
    }
}
