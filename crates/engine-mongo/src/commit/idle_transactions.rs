//! Ends transactions of gateways that died in the middle of a commit.
//!
//! By default the servers keep an idle transaction open for a minute, and until then nobody else
//! can commit to the same topics. A commit that keeps failing therefore looks for transactions of
//! gateways that have stopped making progress, and ends them. If such a gateway turns out to be
//! alive, its transaction has stored nothing, and it retries the commit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::error::Error;

use crate::store::Store;

/// A gateway that was merely faster has finished by then.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Longer than a live gateway takes between two steps of a commit.
const ABANDONED_AFTER: Duration = Duration::from_secs(3);

/// The idle transactions that one failing commit has observed.
pub(super) struct IdleTransactions {
    next_check: Instant,
    observed: HashMap<TransactionId, Observation>,
}

/// The id of the session and the number of the transaction in it.
type TransactionId = (Vec<u8>, i64);

struct Observation {
    active_micros: i64,
    unchanged_since: Instant,
}

impl IdleTransactions {
    pub(super) fn new() -> Self {
        Self { next_check: Instant::now() + CHECK_INTERVAL, observed: HashMap::new() }
    }

    /// Ends abandoned transactions, unless the last check was only just now.
    pub(super) async fn end_abandoned(&mut self, store: &Store) {
        if Instant::now() < self.next_check {
            return;
        }
        if let Err(error) = self.check(store).await {
            // Not worth a warning: the servers end them after a minute.
            tracing::debug!("cannot list idle transactions: {error}");
        }
        self.next_check = Instant::now() + CHECK_INTERVAL;
    }

    async fn check(&mut self, store: &Store) -> Result<(), Error> {
        let admin = store.client.database("admin");
        // Only those of gateways: other programs may keep their transactions open.
        let of_gateways = doc! {
            "type": "idleSession",
            "appName": &store.app_name,
            "transaction.parameters.txnNumber": { "$exists": true },
        };
        let stages = [doc! { "$currentOp": {} }, doc! { "$match": of_gateways }];
        let now = Instant::now();
        let mut still_idle = HashMap::new();
        let mut sessions = admin.aggregate(stages).await?;
        while let Some(session) = sessions.try_next().await? {
            let Some((transaction, active_micros, session_id)) = parse(&session) else { continue };
            let unchanged_since = match self.observed.get(&transaction) {
                Some(before) if before.active_micros == active_micros => before.unchanged_since,
                _ => now,
            };
            if now.duration_since(unchanged_since) >= ABANDONED_AFTER {
                tracing::info!("ending a transaction that a gateway abandoned");
                admin.run_command(doc! { "killSessions": [{ "id": session_id }] }).await?;
            } else {
                still_idle.insert(transaction, Observation { active_micros, unchanged_since });
            }
        }
        self.observed = still_idle;
        Ok(())
    }
}

/// Returns the transaction, how long it was active, and the id of its session.
fn parse(session: &Document) -> Option<(TransactionId, i64, Binary)> {
    let id = session.get_document("lsid").ok()?.get("id")?;
    let Bson::Binary(id) = id else { return None };
    let transaction = session.get_document("transaction").ok()?;
    let number = transaction.get_document("parameters").ok()?.get_i64("txnNumber").ok()?;
    let active_micros = transaction.get_i64("timeActiveMicros").ok()?;
    Some(((id.bytes.clone(), number), active_micros, id.clone()))
}
