//! [`MongoEngine`], the implementation of the engine contract.

use std::sync::Arc;

use async_trait::async_trait;
use mongodb::bson::{Document, doc};
use prombus_engine::disk::backup::{Backup, BackupError, OnDamage};
use prombus_engine::{
    Arrival, Batch, Bounds, Capabilities, CommitError, Committed, Condition, Engine, Figures,
    Health, Page, ReadBudget, ReadError, Retention, StateEntry, StateKey, Unavailable,
};
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::connection::Connection;
use crate::deletion::finish_periodically;
use crate::error::read_error;
use crate::layout::collections::Collections;
use crate::layout::indexes::IndexProblem;
use crate::layout::version::LAYOUT;
use crate::layout::{indexes, version};
use crate::state::sweep::sweep_periodically;
use crate::store::Store;
use crate::watch::change_stream;
use crate::{MongoError, MongoOptions};

/// Stores events and keyed state in MongoDB. On a replica set, any number of engines may share a
/// database.
pub struct MongoEngine {
    store: Arc<Store>,
    /// Background tasks; they end with the engine.
    tasks: Vec<JoinHandle<()>>,
}

impl MongoEngine {
    /// Connects. Creates the collections and indexes of a new database; checks those of an existing
    /// one.
    ///
    /// # Errors
    ///
    /// Fails if the deployment cannot be used, or if the database needs `prombus migrate` first.
    pub async fn open(options: &MongoOptions) -> Result<Self, MongoError> {
        let connection = Connection::open(options).await?;
        let deployment = connection.deployment;
        let store = Arc::new(Store::new(connection, options));
        prepare_layout(&store).await?;
        store.catch_up().await?;
        if !deployment.has_transactions() {
            tracing::warn!(
                "the database is a standalone server, not a replica set: only one gateway may use \
                 it, and a commit to several topics is not atomic; see docs/mongodb.md"
            );
        }
        let mut tasks = vec![
            tokio::spawn(sweep_periodically(Arc::downgrade(&store))),
            tokio::spawn(finish_periodically(Arc::downgrade(&store))),
        ];
        let follow = change_stream::start(&store, options.change_detection).await?;
        if deployment.capabilities().several_gateways {
            tasks.push(tokio::spawn(follow));
        }
        Ok(Self { store, tasks })
    }

    fn stop_tasks(&self) {
        self.store.watchers.close();
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Creates the layout of a new database, or checks that of an existing one. Work that could take
/// long is left to `prombus migrate`.
async fn prepare_layout(store: &Store) -> Result<(), MongoError> {
    match version::read(&store.collections).await? {
        None => {
            indexes::create_all(&store.collections).await?;
            version::write(&store.collections, None).await
        }
        Some(found) if found < LAYOUT => Err(MongoError::OlderLayout { found, needed: LAYOUT }),
        Some(_) => check_indexes(&store.collections).await,
    }
}

/// Creates missing indexes on empty collections. Otherwise a wrong unique index is an error,
/// because it keeps duplicates out; any other is only slow without, so it is a warning.
async fn check_indexes(collections: &Collections) -> Result<(), MongoError> {
    let database = collections.database();
    let mut errors = Vec::new();
    for problem in indexes::problems(collections).await? {
        let documents = database.collection::<Document>(problem.collection());
        let is_missing = matches!(problem, IndexProblem::Missing { .. });
        if is_missing && documents.find_one(doc! {}).await?.is_none() {
            indexes::create(database, problem.collection(), problem.expected()).await?;
        } else if problem.expected().is_unique {
            errors.push(problem.to_string());
        } else {
            tracing::warn!("wrong index: {problem}; run prombus migrate");
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(MongoError::WrongIndexes(errors.join(", "))),
    }
}

impl Drop for MongoEngine {
    fn drop(&mut self) {
        self.stop_tasks();
    }
}

#[async_trait]
impl Engine for MongoEngine {
    fn capabilities(&self) -> Capabilities {
        self.store.deployment.capabilities()
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        batch.check_sizes()?;
        let call = self.store.in_flight.start().await?;
        let store = self.store.clone();
        // A separate task, so that the commit completes even if the caller stops waiting.
        let task = tokio::spawn(async move {
            let committed = store.commit(&batch).await;
            drop(call);
            committed
        });
        match task.await {
            Ok(committed) => committed,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Unavailable::Closed.into()),
        }
    }

    async fn read(&self, topic: &Topic, from: Seq, budget: ReadBudget) -> Result<Page, ReadError> {
        let _call = self.store.in_flight.start().await?;
        self.store.read(topic, from, budget).await
    }

    async fn bounds(&self, topic: &Topic) -> Result<Bounds, ReadError> {
        let _call = self.store.in_flight.start().await?;
        self.store.bounds(topic).await
    }

    async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        let _call = self.store.in_flight.start().await?;
        let mut session = self.store.read_session().await.map_err(read_error)?;
        let topics = self.store.topics(&mut session).await.map_err(read_error)?;
        Ok(topics.iter().filter_map(|topic| topic.topic()).collect())
    }

    async fn seek_time(&self, topic: &Topic, ts: Timestamp) -> Result<Seq, ReadError> {
        let _call = self.store.in_flight.start().await?;
        self.store.seek_time(topic, ts).await
    }

    async fn seek_id(&self, topic: &Topic, id: &EventId) -> Result<Option<Seq>, ReadError> {
        let _call = self.store.in_flight.start().await?;
        let found = self.store.seek_ids(topic, std::slice::from_ref(id)).await?;
        Ok(found.into_iter().next().flatten())
    }

    async fn seek_ids(
        &self,
        topic: &Topic,
        ids: &[EventId],
    ) -> Result<Vec<Option<Seq>>, ReadError> {
        let _call = self.store.in_flight.start().await?;
        self.store.seek_ids(topic, ids).await
    }

    async fn arrival(&self, topic: &Topic, seq: Seq) -> Result<Option<Arrival>, ReadError> {
        let _call = self.store.in_flight.start().await?;
        self.store.arrival(topic, seq).await
    }

    async fn trim(&self, topic: &Topic, below: Seq) -> Result<Bounds, CommitError> {
        let _call = self.store.in_flight.start().await?;
        self.store.trim(topic, below).await
    }

    async fn retain(&self, topic: &Topic, rule: &Retention) -> Result<Bounds, CommitError> {
        let _call = self.store.in_flight.start().await?;
        self.store.retain(topic, rule).await
    }

    async fn get(&self, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
        let found = self.get_many(std::slice::from_ref(key)).await?;
        Ok(found.into_iter().next().flatten())
    }

    async fn get_many(&self, keys: &[StateKey]) -> Result<Vec<Option<StateEntry>>, ReadError> {
        let _call = self.store.in_flight.start().await?;
        self.store.get_many(keys).await
    }

    async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        let _call = self.store.in_flight.start().await?;
        self.store.scan(prefix, after, limit).await
    }

    fn watch(&self, topic: &Topic) -> watch::Receiver<Seq> {
        self.store.watchers.watch(topic)
    }

    async fn backup(&self, _: OnDamage) -> Result<Backup, BackupError> {
        Err(BackupError::Unsupported(
            "the store is in MongoDB: back up the database with mongodump --oplog, or with a snapshot of \
             the disks of a secondary",
        ))
    }

    fn health(&self) -> Health {
        let condition = match self.store.in_flight.is_closed() {
            false => Condition::Healthy,
            true => Condition::Closed,
        };
        Health { condition, incidents: Vec::new() }
    }

    async fn figures(&self) -> Figures {
        let Ok(_call) = self.store.in_flight.start().await else { return Figures::default() };
        self.store.figures().await
    }

    async fn close(&self) -> Result<(), CommitError> {
        if self.store.in_flight.close().await {
            self.stop_tasks();
            self.store.client.clone().shutdown().immediate(true).await;
        }
        Ok(())
    }
}
