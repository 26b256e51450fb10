//! Idle workers notice new documents.

use mongodb::bson::doc;

use super::database::{Database, pending};
use super::worker::{WorkerProcess, ids};
use crate::cli::server::Server;

#[tokio::test]
async fn a_change_stream_or_polling_wakes_a_worker() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    let never = &["--poll-ms", "3600000"][..];
    let often = ["--poll-ms", "50", "--no-change-stream"];
    for (round, arguments) in [never, &often[..]].into_iter().enumerate() {
        let worker = WorkerProcess::start(&database, &server, arguments);
        for n in 0..3 {
            let id = format!("{round}-{n}");
            let mut document = pending(&id, n, Some(&round.to_string()));
            if n == 1 {
                document.insert("payload", f64::NAN);
            }
            database.insert([document]).await;
            let done = if n == 0 { "sent" } else { "error" };
            if n < 2 {
                database.wait_for(doc! { "_id": id, "status": done }, 1).await;
            }
        }
        // Resolving the error needs no restart.
        database.set(&format!("{round}-1"), doc! { "status": "skipped" }).await;
        database.wait_for(doc! { "_id": format!("{round}-2"), "status": "sent" }, 1).await;
        assert!(worker.stop().is_success);
    }
    assert_eq!(ids(&server), ["0-0", "0-2", "1-0", "1-2"]);
}
