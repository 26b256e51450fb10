//! Transactions of gateways that died in the middle of a commit.
//!
//! The servers keep such a transaction for a minute unless told otherwise, and with it whatever it has
//! written: for so long nobody could commit to the same topic. So whoever keeps being refused looks
//! which transactions of gateways do nothing any more, and ends them. One whose gateway lives after all
//! has stored nothing by then: that one begins its commit again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::error::Error;

use crate::store::Store;

/// Gateways that only were faster are done by then.
const LOOKS_AFTER: Duration = Duration::from_millis(500);
/// Longer than a gateway that lives takes between two steps of a commit.
const ABANDONED_AFTER: Duration = Duration::from_secs(3);

/// What one commit that keeps being refused has found out.
pub(crate) struct Abandoned {
    next_look: Instant,
    /// How long each transaction had been at work, and since when that is so, by session and number.
    idle: HashMap<(Vec<u8>, i64), (i64, Instant)>,
}

impl Abandoned {
    pub(crate) fn new() -> Self {
        Self { next_look: Instant::now() + LOOKS_AFTER, idle: HashMap::new() }
    }

    /// Ends what is abandoned, if it is time to look.
    pub(crate) async fn end_some(&mut self, store: &Store) {
        if Instant::now() < self.next_look {
            return;
        }
        if let Err(error) = self.look(store).await {
            // The servers end them in time.
            tracing::debug!("cannot see which transactions are abandoned: {error}");
        }
        self.next_look = Instant::now() + LOOKS_AFTER;
    }

    async fn look(&mut self, store: &Store) -> Result<(), Error> {
        let admin = store.client.database("admin");
        // Nobody else's: what another program does between its writes is its own affair.
        let of_gateways = doc! {
            "type": "idleSession",
            "appName": &store.app_name,
            "transaction.parameters.txnNumber": { "$exists": true },
        };
        let stages = [doc! { "$currentOp": {} }, doc! { "$match": of_gateways }];
        let now = Instant::now();
        let mut still_idle = HashMap::new();
        let mut found = admin.aggregate(stages).await?;
        while let Some(session) = found.try_next().await? {
            let Some((which, at_work, id)) = read(&session) else { continue };
            let since = match self.idle.get(&which) {
                Some((before, since)) if *before == at_work => *since,
                _ => now,
            };
            if now.duration_since(since) >= ABANDONED_AFTER {
                tracing::info!("ends a transaction that a gateway has left behind");
                admin.run_command(doc! { "killSessions": [{ "id": id }] }).await?;
            } else {
                still_idle.insert(which, (at_work, since));
            }
        }
        self.idle = still_idle;
        Ok(())
    }
}

/// Which transaction it is, how long it was at work, and the id of its session.
fn read(session: &Document) -> Option<((Vec<u8>, i64), i64, Binary)> {
    let id = session.get_document("lsid").ok()?.get("id")?;
    let Bson::Binary(id) = id else { return None };
    let transaction = session.get_document("transaction").ok()?;
    let number = transaction.get_document("parameters").ok()?.get_i64("txnNumber").ok()?;
    let at_work = transaction.get_i64("timeActiveMicros").ok()?;
    Some(((id.bytes.clone(), number), at_work, id.clone()))
}
