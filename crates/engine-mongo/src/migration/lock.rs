//! One migration at a time: a lease in the database, by the servers' clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;
use tokio::task::JoinHandle;

use crate::MongoError;
use crate::store::Store;

const NOTE: &str = "migration";
/// So long one that was killed keeps others out.
const LASTS: Duration = Duration::from_secs(20);
const RENEWED_EVERY: Duration = Duration::from_secs(5);
const ASKED_EVERY: Duration = Duration::from_millis(250);

/// Held until it is given back or dropped.
pub(super) struct Lease {
    engine: Collection<Document>,
    holder: String,
    is_held: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
}

impl Lease {
    /// Takes it, as soon as nobody else has it; waits as long as one that was killed can keep it.
    pub(super) async fn take(store: &Store) -> Result<Self, MongoError> {
        let engine = store.collections.engine();
        let nobody = doc! { "$setOnInsert": { "until": DateTime::from_millis(0) } };
        engine.update_one(doc! { "_id": NOTE }, nobody).upsert(true).await?;
        let holder = format!("{:016x}", store.random.next_u64());
        let began = Instant::now();
        while !hold(&engine, &holder).await? {
            if began.elapsed() > LASTS + RENEWED_EVERY {
                return Err(MongoError::Migrating);
            }
            tokio::time::sleep(ASKED_EVERY).await;
        }
        let is_held = Arc::new(AtomicBool::new(true));
        let renewing = tokio::spawn(renew(engine.clone(), holder.clone(), is_held.clone()));
        Ok(Self { engine, holder, is_held, renewing })
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// Others need not wait. Where this does not reach the database, they do.
    pub(super) async fn give_back(self) {
        let mine = doc! { "_id": NOTE, "holder": &self.holder };
        let nobody = doc! { "$set": { "until": DateTime::from_millis(0) } };
        let _ = self.engine.update_one(mine, nobody).await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Holds it for some time more, if nobody else does.
async fn hold(engine: &Collection<Document>, holder: &str) -> Result<bool, Error> {
    let mine_or_over = doc! { "_id": NOTE, "$expr": { "$or": [
        { "$eq": ["$holder", holder] },
        { "$lte": ["$until", "$$NOW"] },
    ] } };
    let lasts = i64::try_from(LASTS.as_millis()).unwrap_or(i64::MAX);
    let change = doc! { "$set": { "holder": holder, "until": { "$add": ["$$NOW", lasts] } } };
    Ok(engine.update_one(mine_or_over, vec![change]).await?.matched_count > 0)
}

async fn renew(engine: Collection<Document>, holder: String, is_held: Arc<AtomicBool>) {
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(RENEWED_EVERY).await;
        let asked = Instant::now();
        let is_mine = match hold(&engine, &holder).await {
            Ok(is_mine) => is_mine,
            // Whether it is still mine is not known; it is as long as it lasts.
            Err(_) => renewed.elapsed() < LASTS,
        };
        if !is_mine {
            is_held.store(false, Ordering::SeqCst);
            return;
        }
        renewed = asked.max(renewed);
    }
}
