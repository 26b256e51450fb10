//! What the database says about its size.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use prombus_engine::Figures;
use tokio::time::timeout;

use crate::store::Store;

/// How long the servers may take: without a primary, nobody who reads the metrics should wait for an election.
const ANSWER_TIME: Duration = Duration::from_secs(2);

impl Store {
    /// Returns no figures if the servers do not answer in time, or do not allow it.
    pub(crate) async fn figures(&self) -> Figures {
        let stats = self.collections.database().run_command(doc! { "dbStats": 1 });
        match timeout(ANSWER_TIME, stats).await {
            Ok(Ok(stats)) => figures_of(&stats),
            Ok(Err(error)) => {
                tracing::debug!("cannot ask the database for its size: {error}");
                Figures::default()
            }
            Err(_) => Figures::default(),
        }
    }
}

fn figures_of(stats: &Document) -> Figures {
    let bytes = |name: &str| bytes(stats.get(name)?);
    let sizes = [("data", bytes("storageSize")), ("indexes", bytes("indexSize"))];
    let free = bytes("fsTotalSize").zip(bytes("fsUsedSize"));
    Figures {
        stored_bytes: sizes.into_iter().filter_map(|(kind, bytes)| Some((kind, bytes?))).collect(),
        free_bytes: free.map(|(total, used)| total.saturating_sub(used)),
        ..Figures::default()
    }
}

/// A number, which is a double, or an integer from some servers.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are exact")]
fn bytes(value: &Bson) -> Option<u64> {
    match *value {
        Bson::Double(bytes) if bytes >= 0.0 => Some(bytes as u64),
        Bson::Int64(bytes) => u64::try_from(bytes).ok(),
        Bson::Int32(bytes) => u64::try_from(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_numbers_of_every_type_and_leaves_out_what_is_missing() {
        let stats = doc! {
            "storageSize": 4096.0, "indexSize": 8192_i64, "fsTotalSize": 1e12, "fsUsedSize": 4e11,
        };
        let figures = figures_of(&stats);
        assert_eq!(figures.stored_bytes, [("data", 4096), ("indexes", 8192)]);
        assert_eq!(figures.free_bytes, Some(600_000_000_000));
        let figures = figures_of(&doc! { "indexSize": 1, "fsTotalSize": "much" });
        assert_eq!((figures.stored_bytes, figures.free_bytes), (vec![("indexes", 1)], None));
    }
}
