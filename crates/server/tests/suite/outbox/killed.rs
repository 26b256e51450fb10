//! Workers and the database are killed at random, again and again, while a service keeps writing.
//!
//! Each document must be published once, those of a key in order, and in the end all must be marked
//! with their positions.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use prombus_proto::{RandomSource, SeededRandom};

use super::database::{Database, pending};
use super::worker::{WorkerProcess, events};
use crate::cli::server::Server;

const DOCUMENTS: u32 = 10_000;
const DOCUMENTS_PER_TRANSACTION: u32 = 100;
const WORKERS: usize = 3;
/// How often the database is killed. Workers are killed three times as often.
const ROUNDS: usize = 4;

/// A tenth has no key, a third shares a few keys, and the rest many.
fn key(number: u32) -> Option<String> {
    match number {
        _ if number.is_multiple_of(10) => None,
        _ if number.is_multiple_of(3) => Some(format!("hot-{}", number % 7)),
        _ => Some(format!("key-{}", number % 997)),
    }
}

/// Slow enough that there is always a worker with claimed documents to kill.
const LIMITS: [&str; 5] = [
    "limits.enabled=true",
    "limits.topic.capacity=200",
    "limits.topic.refill_per_sec=1500",
    "limits.connection.capacity=1000000",
    "limits.connection.refill_per_sec=1000000",
];

/// Writes all documents, each batch in its own transaction, which is retried until it commits.
async fn serve(outbox: Collection<Document>) {
    let client: Client = outbox.client().clone();
    for first in (0..DOCUMENTS).step_by(DOCUMENTS_PER_TRANSACTION as usize) {
        let numbers = first..first + DOCUMENTS_PER_TRANSACTION;
        let documents: Vec<_> =
            numbers.map(|n| pending(&format!("{n:05}"), n.into(), key(n).as_deref())).collect();
        loop {
            let written = async {
                let mut session = client.start_session().await?;
                session.start_transaction().await?;
                outbox.insert_many(&documents).session(&mut session).await?;
                session.commit_transaction().await
            };
            if written.await.is_ok() {
                break;
            }
            // If the answer to the commit was lost, the last document tells whether it happened.
            let last = doc! { "_id": format!("{:05}", first + DOCUMENTS_PER_TRANSACTION - 1) };
            if let Ok(Some(_)) = outbox.find_one(last).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns a worker that has claimed documents.
async fn holder(database: &Database) -> Option<usize> {
    let held = doc! { "status": "pending", "lease_owner": { "$exists": true } };
    let held = database.outbox.find_one(held).await.unwrap()?;
    Some(held.get_str("lease_owner").unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_document_is_published_once_and_in_order_despite_kills() {
    let (mut database, server) = (Database::start().await, Server::start(&LIMITS));
    let start = |database: &Database, number: usize| {
        let name = number.to_string();
        let arguments = ["--lease-ms", "1000", "--poll-ms", "100", "--batch", "100"];
        let arguments = [&arguments[..], &["--name", &name]].concat();
        WorkerProcess::start(database, &server, &arguments)
    };
    let mut workers: Vec<_> = (0..WORKERS).map(|number| start(&database, number)).collect();
    let service = tokio::spawn(serve(database.outbox.clone()));
    let random = SeededRandom::new(6);
    for _ in 0..ROUNDS {
        for turn in 0..WORKERS {
            tokio::time::sleep(Duration::from_millis(300 + random.next_u64() % 400)).await;
            let unlucky = holder(&database).await.unwrap_or(turn);
            // Dropping the old process kills it.
            workers[unlucky] = start(&database, unlucky);
        }
        let killing = tokio::task::spawn_blocking(move || {
            database.mongod.kill_and_restart();
            database
        });
        database = killing.await.unwrap();
    }
    service.await.unwrap();
    database.wait_for(doc! { "status": "sent" }, DOCUMENTS.into()).await;
    let runs: Vec<_> = workers.into_iter().map(WorkerProcess::stop).collect();
    assert!(runs.iter().all(|ran| ran.is_success), "{runs:?}");
    check(&database, &server).await;
}

async fn check(database: &Database, server: &Server) {
    let events = events(server, "t");
    let ids: HashSet<_> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!((events.len(), ids.len()), (DOCUMENTS as usize, DOCUMENTS as usize));
    let mut last_of_key: HashMap<&str, u32> = HashMap::new();
    let mut positions = HashMap::new();
    for event in &events {
        let number = u32::try_from(event["payload"]["n"].as_u64().unwrap()).unwrap();
        assert_eq!(event["key"].as_str(), key(number).as_deref());
        positions.insert(event["id"].as_str().unwrap(), event["seq"].as_i64().unwrap());
        if let Some(key) = event["key"].as_str()
            && let Some(before) = last_of_key.insert(key, number)
        {
            assert!(before < number, "{number} of {key} is behind {before}");
        }
    }
    let documents = database.outbox.find(doc! {}).await.unwrap();
    let documents: Vec<_> = documents.try_collect().await.unwrap();
    let mut retried = 0;
    for document in &documents {
        let id = document.get_str("_id").unwrap();
        assert_eq!(document.get_str("status").ok(), Some("sent"));
        assert_eq!(document.get_i64("seq").ok(), positions.get(id).copied(), "{id}");
        assert!(!document.contains_key("lease_id"), "{document}");
        retried += usize::from(document.get_i32("attempts").unwrap() > 1);
    }
    eprintln!("{retried} of {DOCUMENTS} documents were tried more than once");
}
