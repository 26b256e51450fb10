//! Only one migration runs at a time: a lock in the database that expires by the servers' clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::Error;
use tokio::task::JoinHandle;

use crate::MongoError;
use crate::store::Store;

const DOCUMENT_ID: &str = "migration";
/// How long a migration that was killed keeps others out.
const LOCK_TTL: Duration = Duration::from_secs(20);
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Renewed in the background until it is released or dropped.
pub(super) struct MigrationLock {
    engine: Collection<Document>,
    holder: String,
    is_held: Arc<AtomicBool>,
    renewal: JoinHandle<()>,
}

impl MigrationLock {
    /// Acquires the lock. Waits for as long as a migration that was killed can keep it.
    pub(super) async fn acquire(store: &Store) -> Result<Self, MongoError> {
        let engine = store.collections.engine();
        let free = doc! { "$setOnInsert": { "until": DateTime::from_millis(0) } };
        engine.update_one(doc! { "_id": DOCUMENT_ID }, free).upsert(true).await?;
        let holder = format!("{:016x}", store.random.next_u64());
        let started = Instant::now();
        while !try_acquire(&engine, &holder).await? {
            if started.elapsed() > LOCK_TTL + RENEW_INTERVAL {
                return Err(MongoError::Migrating);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        let is_held = Arc::new(AtomicBool::new(true));
        let renewal = tokio::spawn(renew(engine.clone(), holder.clone(), is_held.clone()));
        Ok(Self { engine, holder, is_held, renewal })
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// Releases the lock. If that fails, others wait until it expires.
    pub(super) async fn release(self) {
        let mine = doc! { "_id": DOCUMENT_ID, "holder": &self.holder };
        let free = doc! { "$set": { "until": DateTime::from_millis(0) } };
        let _ = self.engine.update_one(mine, free).await;
    }
}

impl Drop for MigrationLock {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// Acquires or renews the lock. Returns `false` if another process holds it.
async fn try_acquire(engine: &Collection<Document>, holder: &str) -> Result<bool, Error> {
    let mine_or_expired = doc! { "_id": DOCUMENT_ID, "$expr": { "$or": [
        { "$eq": ["$holder", holder] },
        { "$lte": ["$until", "$$NOW"] },
    ] } };
    let ttl_ms = i64::try_from(LOCK_TTL.as_millis()).unwrap_or(i64::MAX);
    let change = doc! { "$set": { "holder": holder, "until": { "$add": ["$$NOW", ttl_ms] } } };
    Ok(engine.update_one(mine_or_expired, vec![change]).await?.matched_count > 0)
}

async fn renew(engine: Collection<Document>, holder: String, is_held: Arc<AtomicBool>) {
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        let started = Instant::now();
        let is_mine = match try_acquire(&engine, &holder).await {
            Ok(is_mine) => is_mine,
            // Unknown, but nobody else can have it before it expires.
            Err(_) => renewed.elapsed() < LOCK_TTL,
        };
        if !is_mine {
            is_held.store(false, Ordering::SeqCst);
            return;
        }
        renewed = started.max(renewed);
    }
}
