//! The figures of the database.

use libtest_mimic::Trial;
use prombus_engine::{Engine, Figures};

use crate::database::{Database, append, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("figures::the_servers_tell_the_size_of_the_database", sizes)]
}

async fn sizes() {
    let database = Database::new().await;
    let engine = database.engine().await;
    append(&engine, "orders", &["a", "b"]).await;
    let figures = engine.figures().await;
    let kinds: Vec<_> = figures.stored_bytes.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, ["data", "indexes"]);
    assert!(figures.stored_bytes.iter().all(|(_, bytes)| *bytes > 0), "{figures:?}");
    assert!(figures.free_bytes.unwrap() > 0);
    assert_eq!((figures.wal_backlog, figures.checkpoints), (None, None));
    engine.close().await.unwrap();
    assert_eq!(engine.figures().await, Figures::default());
}
