//! The engine.

use std::sync::Arc;

use async_trait::async_trait;
use mongodb::Database;
use mongodb::bson::{Document, doc};
use prombus_engine::{
    Batch, Bounds, Capabilities, CommitError, Committed, Condition, Engine, Health, Page,
    ReadBudget, ReadError, Retention, StateEntry, StateKey, Unavailable,
};
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::connection::Connected;
use crate::error::of_read;
use crate::layout::indexes::Flaw;
use crate::layout::version::LAYOUT;
use crate::layout::{indexes, version};
use crate::state::sweep::sweep_from_time_to_time;
use crate::store::Store;
use crate::watch::change_stream;
use crate::{MongoError, MongoOptions};

/// Events and state in MongoDB. Any number of them may use one database, if it is a replica set.
pub struct MongoEngine {
    store: Arc<Store>,
    /// What goes on by itself, and ends with the engine.
    behind: Vec<JoinHandle<()>>,
}

impl MongoEngine {
    /// Connects. In a new database, makes collections and indexes; one that is in use has to have them.
    pub async fn open(options: &MongoOptions) -> Result<Self, MongoError> {
        let connected = Connected::to(options).await?;
        let deployment = connected.deployment;
        let store = Arc::new(Store::over(connected, options));
        make_or_check(&store).await?;
        store.see_what_was_answered().await?;
        if !deployment.has_transactions() {
            tracing::warn!(
                "the database is a single server that is no replica set: only one gateway may use \
                 it, and a commit to several topics is not all or nothing; see docs/mongodb.md"
            );
        }
        let mut behind = vec![tokio::spawn(sweep_from_time_to_time(Arc::downgrade(&store)))];
        let follow = change_stream::begin(&store, options.tail).await?;
        if deployment.capabilities().several_gateways {
            behind.push(tokio::spawn(follow));
        }
        Ok(Self { store, behind })
    }

    fn end_what_is_behind(&self) {
        self.store.growth.end();
        for task in &self.behind {
            task.abort();
        }
    }
}

/// Makes what a new database needs. One that is in use has to be as this program needs it: what could
/// take long is left to `prombus migrate`.
async fn make_or_check(store: &Store) -> Result<(), MongoError> {
    let database = store.collections.database();
    match version::noted(&store.collections).await? {
        None => {
            indexes::make_all(database).await?;
            version::note(&store.collections, None).await
        }
        Some(found) if found < LAYOUT => Err(MongoError::OlderLayout { found, needed: LAYOUT }),
        Some(_) => check_indexes(database).await,
    }
}

/// Makes missing ones of empty collections. Without those that keep doubles out nothing is safe; without
/// the others it is slow.
async fn check_indexes(database: &Database) -> Result<(), MongoError> {
    let mut unsafe_without = Vec::new();
    for flaw in indexes::flaws(database).await? {
        let documents = database.collection::<Document>(flaw.collection());
        let is_missing = matches!(flaw, Flaw::Missing { .. });
        if is_missing && documents.find_one(doc! {}).await?.is_none() {
            indexes::make(database, flaw.collection(), flaw.due()).await?;
        } else if flaw.due().is_unique {
            unsafe_without.push(flaw.to_string());
        } else {
            tracing::warn!("an index is not as it should be: {flaw}; run prombus migrate");
        }
    }
    match unsafe_without.is_empty() {
        true => Ok(()),
        false => Err(MongoError::WrongIndexes(unsafe_without.join(", "))),
    }
}

impl Drop for MongoEngine {
    fn drop(&mut self) {
        self.end_what_is_behind();
    }
}

#[async_trait]
impl Engine for MongoEngine {
    fn capabilities(&self) -> Capabilities {
        self.store.deployment.capabilities()
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        batch.check_sizes()?;
        let inside = self.store.gate.enter().await?;
        let store = self.store.clone();
        // On its own, so that it is finished also when nobody waits for the answer.
        let work = tokio::spawn(async move {
            let answer = store.commit(&batch).await;
            drop(inside);
            answer
        });
        match work.await {
            Ok(answer) => answer,
            Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
            Err(_) => Err(Unavailable::Closed.into()),
        }
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        let _inside = self.store.gate.enter().await?;
        self.store.read(topic, from, budget).await
    }

    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        let _inside = self.store.gate.enter().await?;
        self.store.bounds(topic).await
    }

    async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        let _inside = self.store.gate.enter().await?;
        let mut session = self.store.reader().await.map_err(of_read)?;
        let known = self.store.topics(&mut session).await.map_err(of_read)?;
        Ok(known.iter().filter_map(|topic| topic.topic()).collect())
    }

    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        let _inside = self.store.gate.enter().await?;
        self.store.seek_time(topic, ts).await
    }

    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
        let _inside = self.store.gate.enter().await?;
        self.store.seek_id(topic, id).await
    }

    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        let _inside = self.store.gate.enter().await?;
        self.store.trim(topic, below).await
    }

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        let _inside = self.store.gate.enter().await?;
        self.store.retain(topic, rule).await
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        let found = self.get_many(std::slice::from_ref(key)).await?;
        Ok(found.into_iter().next().flatten())
    }

    async fn get_many(&self, keys: &[StateKey]) -> Result<Vec<Option<StateEntry>>, ReadError> {
        let _inside = self.store.gate.enter().await?;
        self.store.get_many(keys).await
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        let _inside = self.store.gate.enter().await?;
        self.store.scan(prefix, after, limit).await
    }

    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        self.store.growth.watch(topic)
    }

    fn health(&self) -> Health {
        let condition = match self.store.gate.is_closed() {
            false => Condition::Healthy,
            true => Condition::Closed,
        };
        Health { condition, incidents: Vec::new() }
    }

    async fn close(&self) -> Result<(), CommitError> {
        if self.store.gate.close().await {
            self.end_what_is_behind();
            self.store.client.clone().shutdown().immediate(true).await;
        }
        Ok(())
    }
}
