//! The stores of the suite: MongoDB with `PROMBUS_TEST_ENGINE=mongodb`, otherwise memory, or disk
//! if the store has to outlive the server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::sync::Arc;

use prombus_engine::{DiskEngine, DiskOptions, Engine, MemoryEngine};
use prombus_engine_mongo::{MongoEngine, MongoOptions};
use prombus_proto::SystemClock;
use prombus_test_mongod::{Kind, new_database, shared};
use tempfile::TempDir;

/// A new engine for a server in this process.
pub(crate) async fn engine() -> Arc<dyn Engine> {
    match is_mongodb() {
        true => Store::new().open().await,
        false => Arc::new(MemoryEngine::new(Arc::new(SystemClock))),
    }
}

/// A store that outlives its servers.
pub(crate) enum Store {
    Folder(TempDir),
    /// The address of a new database on the shared server.
    Database(String),
}

impl Store {
    pub(crate) fn new() -> Self {
        match is_mongodb() {
            true => Self::Database(shared(Kind::ReplicaSet).database_url(&new_database())),
            false => Self::Folder(tempfile::tempdir().expect("a temporary folder")),
        }
    }

    /// Opens the store for a server in this process.
    pub(crate) async fn open(&self) -> Arc<dyn Engine> {
        match self {
            Self::Folder(folder) => Arc::new(
                DiskEngine::open(&DiskOptions::at(folder.path())).expect("the store opens"),
            ),
            Self::Database(url) => Arc::new(
                MongoEngine::open(&MongoOptions::at(url.as_str(), prombus_bus::STATE_KINDS))
                    .await
                    .expect("the database opens"),
            ),
        }
    }

    /// The arguments that make the built binary use the store.
    pub(crate) fn arguments(&self) -> [String; 2] {
        match self {
            Self::Folder(folder) => ["--data".into(), folder.path().display().to_string()],
            Self::Database(url) => ["--engine".into(), url.clone()],
        }
    }
}

fn is_mongodb() -> bool {
    match std::env::var("PROMBUS_TEST_ENGINE").as_deref() {
        Err(_) => false,
        Ok("mongodb") => true,
        Ok(other) => panic!("PROMBUS_TEST_ENGINE is {other}; it must be mongodb or unset"),
    }
}
