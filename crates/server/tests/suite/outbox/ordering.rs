//! Order within a key.

use mongodb::bson::{DateTime, doc};

use super::database::{Database, pending};
use super::worker::{ids, once};
use crate::cli::server::Server;

#[tokio::test]
async fn an_error_blocks_its_key_until_it_is_resolved() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    let bad = |id: &str, number, key| {
        let mut document = pending(id, number, Some(key));
        document.insert("payload", f64::NAN);
        document
    };
    database
        .insert([
            pending("a1", 1, Some("a")),
            bad("a2", 2, "a"),
            pending("a3", 3, Some("a")),
            bad("b1", 1, "b"),
            pending("b2", 2, Some("b")),
            pending("c1", 9, Some("c")),
        ])
        .await;
    // The same key in another topic.
    let mut other_topic = pending("e", 9, Some("a"));
    other_topic.insert("topic", "u");
    database.insert([other_topic]).await;
    once(&database, &server, &[]).failed_with("2 documents were rejected");
    assert_eq!(ids(&server), ["a1", "c1"]);
    assert_eq!(database.status("e").await, "sent");
    // Nothing changes without intervention, and the blocked document was not tried.
    assert_eq!(once(&database, &server, &[]).lines()[0]["sent"], 0);
    let waits = database.get("a3").await;
    assert_eq!(
        (waits.get_str("status").ok(), waits.get_i32("attempts").ok()),
        (Some("pending"), Some(0))
    );
    database.set("a2", doc! { "status": "skipped" }).await;
    assert_eq!(once(&database, &server, &[]).lines()[0]["sent"], 1);
    database.set("b1", doc! { "status": "pending", "payload": 1 }).await;
    assert_eq!(once(&database, &server, &[]).lines()[0]["sent"], 2);
    assert_eq!(ids(&server), ["a1", "c1", "a3", "b1", "b2"]);
}

#[tokio::test]
async fn a_long_queue_behind_an_error_does_not_delay_other_keys() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    let mut blocked: Vec<_> =
        (0..3000).map(|n| pending(&format!("blocked-{n:04}"), n, Some("k"))).collect();
    blocked[0].insert("payload", f64::NAN);
    database.insert(blocked).await;
    database.insert((0..30).map(|n| pending(&format!("{n:02}"), 9000 + n, Some("other")))).await;
    let ran = once(&database, &server, &["--batch", "10"]);
    assert_eq!(ran.json()[0]["sent"], 30);
    database.wait_for(doc! { "status": "pending", "lease_id": { "$exists": false } }, 2999).await;
}

/// Documents of the same millisecond are ordered by `_id`.
#[tokio::test]
async fn order_is_by_time_and_then_by_id() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    let at_once = |id: &str| {
        let mut document = pending(id, 0, Some("k"));
        document.insert("ts", DateTime::from_millis(1_700_000_000_000));
        document
    };
    database.insert(["d", "$b", "a", "c"].map(at_once)).await;
    database.insert([pending("first", -1, Some("k"))]).await;
    assert_eq!(once(&database, &server, &["--batch", "2"]).lines()[0]["sent"], 5);
    assert_eq!(ids(&server), ["first", "$b", "a", "c", "d"]);
}
