//! Expired values leave the database.
//!
//! Marks do so by their index, by the servers' clock. Values in `state` are looked at by nobody else
//! and go by this engine's clock, which is what says whether they are over.

use std::sync::Weak;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::error::Error;

use crate::state::collection::Shelf;
use crate::state::document::date_of;
use crate::store::Store;

const EVERY: Duration = Duration::from_secs(60);

/// Sweeps now and then, until the store is gone.
pub(crate) async fn sweep_from_time_to_time(store: Weak<Store>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(store) = store.upgrade() else { return };
        if let Err(error) = store.sweep().await {
            tracing::warn!("expired state could not be removed, trying again later: {error}");
        }
    }
}

impl Store {
    /// Removes values that are over.
    pub(crate) async fn sweep(&self) -> Result<u64, Error> {
        let over = doc! { "expireAt": { "$lte": date_of(self.clock.now()) } };
        let state = self.collections.state(Shelf::Other.collection());
        Ok(state.delete_many(over).await?.deleted_count)
    }
}
