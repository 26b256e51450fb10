//! Removes expired entries of the keyed state.
//!
//! Kinds that only mark a key have a TTL index, so the servers remove their entries by the servers'
//! clock. The entries of `state` are removed here, by the same clock that decides whether they have
//! expired.

use std::sync::Weak;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::error::Error;

use crate::layout::collections::STATE;
use crate::state::document::to_date;
use crate::store::Store;

const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Sweeps once a minute until the store is dropped.
pub(crate) async fn sweep_periodically(store: Weak<Store>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(store) = store.upgrade() else { return };
        if let Err(error) = store.sweep().await {
            tracing::warn!("cannot remove expired state: {error}; retrying in a minute");
        }
    }
}

impl Store {
    async fn sweep(&self) -> Result<(), Error> {
        let expired = doc! { "expireAt": { "$lte": to_date(self.clock.now()) } };
        self.collections.state(STATE).delete_many(expired).await?;
        Ok(())
    }
}
