//! Leases: respected while they last, taken over when they expire, and fenced.

use mongodb::bson::{DateTime, Document, doc};
use rustix::process::Signal;
use serde_json::json;

use super::database::{Database, pending};
use super::worker::{WorkerProcess, ids, once, wait_for_an_event};
use crate::cli::server::Server;

/// A server that accepts two events per second, so that a batch takes a while.
fn slow_server() -> Server {
    let limits =
        ["limits.enabled=true", "limits.topic.capacity=1", "limits.topic.refill_per_sec=2"];
    Server::start(&limits)
}

/// Documents of one key.
fn documents(count: i64) -> impl Iterator<Item = Document> {
    (1..=count).map(|n| pending(&n.to_string(), n, Some("k")))
}

fn leased(document: Document, until: DateTime) -> Document {
    let mut document = document;
    document.extend(doc! { "lease_id": "theirs", "lease_owner": "another", "lease_until": until });
    document
}

const FAR_AHEAD: DateTime = DateTime::from_millis(4_000_000_000_000);

#[tokio::test]
async fn a_lease_protects_its_documents_until_it_expires() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    let held = leased(pending("held", 1, Some("k")), FAR_AHEAD);
    let ended = leased(pending("ended", 1, Some("j")), DateTime::from_millis(1_700_000_000_000));
    database.insert([held, pending("behind", 2, Some("k")), ended, pending("free", 3, None)]).await;
    let worker = WorkerProcess::start(&database, &server, &["--poll-ms", "50"]);
    database.wait_for(doc! { "status": "sent" }, 2).await;
    database.insert([pending("later", 4, Some("k")), pending("also free", 4, None)]).await;
    database.wait_for(doc! { "status": "sent" }, 3).await;
    assert_eq!(database.get("held").await.get_str("lease_owner").ok(), Some("another"));
    for waits in ["behind", "later"] {
        assert_eq!(database.status(waits).await, "pending");
    }
    // No change event reports an expired lease.
    database.set("held", doc! { "lease_until": DateTime::from_millis(1) }).await;
    database.wait_for(doc! { "status": "sent" }, 6).await;
    assert!(worker.stop().is_success);
    let ids = ids(&server);
    assert_eq!(ids[3..], ["held", "behind", "later"]);
    assert!(["ended", "free", "also free"].iter().all(|id| ids[..3].contains(&(*id).to_owned())));
}

#[tokio::test]
async fn a_worker_does_not_mark_documents_that_were_taken_over() {
    let (database, server) = (Database::start().await, slow_server());
    database.insert(documents(10)).await;
    let worker = WorkerProcess::start(&database, &server, &["--name", "slow"]);
    database.wait_for(doc! { "lease_owner": "slow" }, 10).await;
    wait_for_an_event(&server).await;
    // While it publishes, another worker takes over.
    let theirs = doc! { "lease_id": "theirs", "lease_owner": "another", "lease_until": FAR_AHEAD };
    database.outbox.update_many(doc! {}, doc! { "$set": theirs }).await.unwrap();
    let ran = worker.stop();
    assert!(ran.err.contains("10 documents were taken over by other workers"), "{ran:?}");
    let summary = json!({ "sent": 0, "duplicates": 0, "errors": 0, "taken_over": 10 });
    assert_eq!(ran.lines(), [summary]);
    let untouched = doc! {
        "status": "pending", "lease_id": "theirs", "attempts": 1,
        "seq": { "$exists": false }, "sent_at": { "$exists": false },
    };
    database.wait_for(untouched, 10).await;
}

#[tokio::test]
async fn a_suspended_worker_stores_nothing_twice_when_it_resumes() {
    let (database, server) = (Database::start().await, slow_server());
    database.insert(documents(6)).await;
    let slow = ["--name", "slow", "--lease-ms", "1000"];
    let slow = WorkerProcess::start(&database, &server, &slow);
    database.wait_for(doc! { "lease_owner": "slow" }, 6).await;
    // Otherwise it has nothing to mark when it resumes and is stopped.
    wait_for_an_event(&server).await;
    slow.signal(Signal::STOP);
    // Waits until the lease has expired.
    assert_eq!(once(&database, &server, &["--name", "quick"]).lines()[0]["sent"], 6);
    slow.signal(Signal::CONT);
    assert_eq!(slow.stop().lines()[0]["taken_over"], 6);
    assert_eq!(ids(&server), ["1", "2", "3", "4", "5", "6"]);
    database.wait_for(doc! { "status": "sent", "lease_id": { "$exists": false } }, 6).await;
}

#[tokio::test]
async fn a_stopped_worker_releases_its_leases() {
    let (database, server) = (Database::start().await, slow_server());
    database.insert(documents(10)).await;
    let worker = WorkerProcess::start(&database, &server, &["--name", "w"]);
    wait_for_an_event(&server).await;
    let sent = worker.stop().lines()[0]["sent"].as_u64().unwrap();
    assert!((1..10).contains(&sent), "{sent}");
    database.wait_for(doc! { "lease_id": { "$exists": true } }, 0).await;
    database.wait_for(doc! { "status": "sent", "attempts": 1 }, sent).await;
    database.wait_for(doc! { "status": "pending", "attempts": 0 }, 10 - sent).await;
    assert_eq!(ids(&server).len() as u64, sent);
}
