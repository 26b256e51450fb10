//! The database of a service, seen by the bare driver.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Client, Collection};
use prombus_test_mongod::{Kind, Mongod};

/// Only keeps a hanging test from blocking the suite; no test asserts how long anything takes.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// A MongoDB server with an outbox.
pub(crate) struct Database {
    pub(crate) mongod: Mongod,
    pub(crate) outbox: Collection<Document>,
}

impl Database {
    pub(crate) async fn start() -> Self {
        let mongod = Mongod::start_on_thread(Kind::ReplicaSet);
        let outbox = Client::with_uri_str(mongod.url()).await.unwrap();
        let outbox = outbox.database("shop").collection("outbox");
        Self { mongod, outbox }
    }

    /// The connection string, including the database.
    pub(crate) fn url(&self) -> String {
        self.mongod.url().replace("/?", "/shop?")
    }

    pub(crate) async fn insert(&self, documents: impl IntoIterator<Item = Document>) {
        self.outbox.insert_many(documents).await.unwrap();
    }

    pub(crate) async fn get(&self, id: &str) -> Document {
        self.outbox.find_one(doc! { "_id": id }).await.unwrap().unwrap()
    }

    pub(crate) async fn status(&self, id: &str) -> String {
        self.get(id).await.get_str("status").unwrap().to_owned()
    }

    pub(crate) async fn set(&self, id: &str, members: Document) {
        let done = self.outbox.update_one(doc! { "_id": id }, doc! { "$set": members }).await;
        assert_eq!(done.unwrap().matched_count, 1);
    }

    /// Waits until this many documents match.
    pub(crate) async fn wait_for(&self, filter: Document, count: u64) {
        let there = async {
            // Fails while the server is being restarted.
            while self.outbox.count_documents(filter.clone()).await.ok() != Some(count) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(HANG_TIMEOUT, there).await.expect("the documents appear");
    }
}

/// The document number `number` of a service.
pub(crate) fn pending(id: &str, number: i64, key: Option<&str>) -> Document {
    let ts = DateTime::from_millis(1_700_000_000_000 + number);
    let mut document = doc! {
        "_id": id, "topic": "t", "payload": { "n": number }, "status": "pending", "ts": ts, "attempts": 0,
    };
    if let Some(key) = key {
        document.insert("key", key);
    }
    document
}
