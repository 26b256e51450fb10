//! Leases: kept while they last, taken over when they end, and fenced off then.

use mongodb::bson::{DateTime, Document, doc};
use rustix::process::Signal;

use super::database::{Database, pending};
use super::worker::{WorkerProcess, ids, once};
use crate::cli::server::Server;

/// A server that takes one event and then lets the next wait for two seconds.
fn slow_server() -> Server {
    let limits =
        ["limits.enabled=true", "limits.topic.capacity=1", "limits.topic.refill_per_sec=0.5"];
    let server = Server::start(&limits);
    assert!(server.run(&["publish", "t", "\"the first\""], "").is_success);
    server
}

fn leased(document: Document, until: DateTime) -> Document {
    let mut document = document;
    document.extend(doc! { "lease_id": "theirs", "lease_owner": "another", "lease_until": until });
    document
}

const FAR_OFF: DateTime = DateTime::from_millis(4_000_000_000_000);

#[tokio::test]
async fn a_lease_keeps_its_documents_until_it_ends() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    let held = leased(pending("held", 1, Some("k")), FAR_OFF);
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
    // Nobody tells of a lease that ends.
    database.set("held", doc! { "lease_until": DateTime::from_millis(1) }).await;
    database.wait_for(doc! { "status": "sent" }, 6).await;
    assert!(worker.stop().is_success);
    let ids = ids(&server);
    assert_eq!(ids[3..], ["held", "behind", "later"]);
    assert!(["ended", "free", "also free"].iter().all(|id| ids[..3].contains(&(*id).to_owned())));
}

#[tokio::test]
async fn a_worker_marks_nothing_that_another_has_taken_over() {
    let (database, server) = (Database::start().await, slow_server());
    database.insert([pending("o", 1, Some("k"))]).await;
    let worker = WorkerProcess::start(&database, &server, &["--name", "slow", "--poll-ms", "50"]);
    database.wait_for(doc! { "lease_owner": "slow" }, 1).await;
    // It waits for the server. Meanwhile another worker takes over.
    let theirs = doc! { "lease_id": "theirs", "lease_owner": "another", "lease_until": FAR_OFF };
    database.set("o", theirs).await;
    let ran = worker.stop();
    assert!(ran.err.contains("taken over by other workers"), "{ran:?}");
    assert_eq!(ran.lines()[0]["taken_over"], 1);
    assert_eq!(ids(&server).len(), 2, "it is published all the same");
    let document = database.get("o").await;
    assert_eq!(document.get_str("status").ok(), Some("pending"));
    assert_eq!(document.get_str("lease_id").ok(), Some("theirs"));
    assert!(!document.contains_key("seq") && !document.contains_key("sent_at"));
}

#[tokio::test]
async fn a_worker_that_was_held_up_stores_nothing_twice_when_it_goes_on() {
    let (database, server) = (Database::start().await, slow_server());
    database.insert((1..=3).map(|n| pending(&format!("{n}"), n, Some("k")))).await;
    let slow = ["--name", "slow", "--poll-ms", "50", "--lease-ms", "1000"];
    let slow = WorkerProcess::start(&database, &server, &slow);
    database.wait_for(doc! { "lease_owner": "slow" }, 3).await;
    slow.signal(Signal::STOP);
    // It waits for the lease to end, and then for the limit of rate.
    assert_eq!(once(&database, &server, &["--name", "quick"]).lines()[0]["sent"], 3);
    slow.signal(Signal::CONT);
    let said = slow.stop().lines();
    assert_eq!((&said[0]["errors"], database.status("3").await.as_str()), (&0.into(), "sent"));
    assert_eq!(ids(&server)[1..], ["1", "2", "3"]);
    database.wait_for(doc! { "lease_id": { "$exists": true } }, 0).await;
}

#[tokio::test]
async fn a_worker_that_is_stopped_gives_its_leases_back() {
    let (database, server) = (Database::start().await, slow_server());
    database.insert((1..=5).map(|n| pending(&format!("{n}"), n, Some("k")))).await;
    let worker = WorkerProcess::start(&database, &server, &["--name", "w"]);
    database.wait_for(doc! { "lease_owner": "w" }, 5).await;
    let sent = worker.stop().lines()[0]["sent"].as_u64().unwrap();
    database.wait_for(doc! { "lease_id": { "$exists": true } }, 0).await;
    database.wait_for(doc! { "status": "sent" }, sent).await;
    database.wait_for(doc! { "status": "pending" }, 5 - sent).await;
    assert!(sent < 5);
}
