//! The command line: indexes it creates, and errors that say what to do.

use mongodb::bson::{Document, doc};
use prombus_test_mongod::{Kind, Mongod};

use super::database::{Database, pending};
use super::worker::once;
use crate::cli::server::{Ran, Server, prombus};

async fn seconds_kept(database: &Database) -> Option<i64> {
    let indexes = database.outbox.list_indexes().await.unwrap();
    let indexes: Vec<_> = futures_util::TryStreamExt::try_collect(indexes).await.unwrap();
    let of_sent = indexes.iter().find(|index| index.keys == doc! { "sent_at": 1 })?;
    Some(of_sent.options.as_ref()?.expire_after?.as_secs().try_into().unwrap())
}

#[tokio::test]
async fn creates_indexes_and_removes_sent_documents_if_asked() {
    let (database, server) = (Database::start().await, Server::start(&[]));
    assert!(once(&database, &server, &[]).is_success);
    let indexes = database.outbox.list_indexes().await.unwrap();
    let indexes: Vec<_> = futures_util::TryStreamExt::try_collect(indexes).await.unwrap();
    let keys: Vec<Document> = indexes.into_iter().map(|index| index.keys).collect();
    for wanted in [
        doc! { "status": 1, "lease_until": 1 },
        doc! { "ts": 1 },
        doc! { "status": 1, "ts": 1, "_id": 1 },
        doc! { "topic": 1, "key": 1, "status": 1, "ts": 1, "_id": 1 },
    ] {
        assert!(keys.contains(&wanted), "{wanted} is not in {keys:?}");
    }
    assert_eq!(seconds_kept(&database).await, None);
    for (argument, seconds) in [("7d", 604_800), ("1s", 1)] {
        assert!(once(&database, &server, &["--keep-sent", argument]).is_success);
        assert_eq!(seconds_kept(&database).await, Some(seconds));
    }
    let mut bad = pending("bad", 1, None);
    bad.insert("topic", 1);
    database.insert([pending("good", 1, None), bad]).await;
    once(&database, &server, &[]).failed_with("1 documents were rejected");
    // The test server's TTL monitor runs every second.
    database.wait_for(doc! {}, 1).await;
    assert_eq!(database.status("bad").await, "error", "only sent documents are removed");
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let server = Server::start(&[]);
    let run = |arguments: &[&str]| {
        let mut command = prombus(&["outbox", "--url", &server.url, "--once"]);
        Ran::of(command.args(arguments).env_remove("PROMBUS_MONGO").output().unwrap())
    };
    run(&[]).failed_with("no outbox given: pass --mongo mongodb://… or set PROMBUS_MONGO");
    run(&["--mongo", "db"]).failed_with("a MongoDB connection string, such as mongodb://");
    let away = "mongodb://me:hunter2@127.0.0.1:1/shop?serverSelectionTimeoutMS=300";
    let away = run(&["--mongo", away]);
    away.failed_with("no primary found");
    assert!(!away.err.contains("hunter2"), "{away:?}");
    let alone = Mongod::start_on_thread(Kind::Standalone);
    run(&["--mongo", &alone.url()]).failed_with("the address names no database");
    run(&["--mongo", &alone.url(), "--database", "shop"]).failed_with("rs.initiate()");
    for (argument, value) in [("--batch", "0"), ("--lease-ms", "1"), ("--keep-sent", "7")] {
        let wrong = run(&["--mongo", "mongodb://db/shop", argument, value]);
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
    }
    let nobody = ["outbox", "--once", "--url", "ws://127.0.0.1:1", "--mongo", "mongodb://db/shop"];
    Ran::of(prombus(&nobody).output().unwrap()).failed_with("127.0.0.1:1");
}
