//! `prombus migrate`: plans the changes that a database needs, and applies them.
//!
//! - `plan`: the steps, as text and as JSON.
//! - `lock`: only one migration runs at a time.
//! - `build_index`: builds missing indexes and replaces wrong ones.
//! - `change_ttl`: changes the time to live of topics.
//!
//! Every step can be interrupted and resumed, and gateways keep publishing meanwhile.

mod build_index;
mod change_ttl;
mod lock;
mod plan;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use mongodb::bson::{Document, doc};
use prombus_engine::{ReadError, StateEntry, StateKey};
use prombus_proto::Topic;

use crate::connection::Connection;
use crate::layout::numbers::{from_bson, to_bson};
use crate::layout::topic_document::TopicDocument;
use crate::layout::version::LAYOUT;
use crate::layout::{indexes, version};
use crate::store::Store;
use crate::{MongoError, MongoOptions};
use change_ttl::TtlChanger;
use lock::MigrationLock;
use plan::Action;
pub use plan::{MigrationPlan, Step};

/// A connection to a database that may need migration.
pub struct Migration {
    store: Store,
}

/// The progress of a step.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    pub step: &'a Step,
    /// Documents done.
    pub done: u64,
    /// Estimated number of documents; 0 if unknown.
    pub total: u64,
}

/// Called with the progress of a migration. Returns `Break` to stop it.
pub type OnProgress<'a> = &'a (dyn Fn(&Progress<'_>) -> ControlFlow<()> + Send + Sync);

impl Migration {
    /// Connects without changing anything.
    ///
    /// # Errors
    ///
    /// Fails if a newer version of this program created the database.
    pub async fn connect(options: &MongoOptions) -> Result<Self, MongoError> {
        let store = Store::new(Connection::open(options).await?, options);
        version::read(&store.collections).await?;
        store.catch_up().await?;
        Ok(Self { store })
    }

    /// Returns `true` if gateways may keep running while a TTL is changed. On a standalone server
    /// an event that is committed at the very moment of the change may get the old TTL.
    #[must_use]
    pub const fn is_safe_while_in_use(&self) -> bool {
        self.store.deployment.has_transactions()
    }

    /// Scans the keyed state like [`prombus_engine::Engine::scan`]. Its format is the same in all
    /// layouts.
    pub async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        self.store.scan(prefix, after, limit).await
    }

    /// Plans the steps that bring the database to the current layout, and every topic to the TTL in
    /// `ttls`, in milliseconds; a topic that is not listed gets none. Changes nothing.
    pub async fn plan(&self, ttls: &BTreeMap<Topic, u64>) -> Result<MigrationPlan, MongoError> {
        let collections = &self.store.collections;
        let database = collections.database();
        let layout = version::read(collections).await?;
        let existing = database.list_collection_names().await?;
        let missing =
            collections.names().filter(|name| !existing.iter().any(|other| other == name));
        let mut actions: Vec<Action> = missing.map(Action::CreateCollection).collect();
        for problem in indexes::problems(collections).await? {
            let collection = database.collection::<Document>(problem.collection());
            let documents = collection.estimated_document_count().await?;
            actions.push(Action::BuildIndex { problem, documents });
        }
        if layout != Some(LAYOUT) {
            actions.push(Action::RecordLayout { from: layout });
        }
        let mut topics = self.topics().await?;
        for topic in ttls.keys() {
            topics.entry(topic.clone()).or_insert_with(|| TopicDocument::new(topic.as_str()));
        }
        for (topic, document) in topics {
            let to = ttls.get(&topic).copied();
            if document.ttl_change.is_some() || document.ttl_ms != to.map(to_bson) {
                actions.push(Action::ChangeTtl {
                    events: document.bounds().count(),
                    from: document.ttl_ms.map(from_bson),
                    to,
                    topic,
                    resumes: document.ttl_change.is_some(),
                });
            }
        }
        Ok(MigrationPlan::new(database.name(), layout, actions))
    }

    async fn topics(&self) -> Result<BTreeMap<Topic, TopicDocument>, MongoError> {
        let mut found = self.store.collections.topics().find(doc! {}).await?;
        let mut topics = BTreeMap::new();
        while found.advance().await? {
            let document = found.deserialize_current()?;
            if let Some(topic) = document.topic() {
                topics.insert(topic, document);
            }
        }
        Ok(topics)
    }

    /// Applies `plan` step by step. Waits if another migration is running.
    pub async fn apply(
        &self,
        plan: &MigrationPlan,
        on_progress: OnProgress<'_>,
    ) -> Result<(), MongoError> {
        if plan.steps().is_empty() {
            return Ok(());
        }
        let lock = MigrationLock::acquire(&self.store).await?;
        let mut applied = Ok(());
        for step in plan.steps() {
            applied = self.apply_step(step, &lock, on_progress).await;
            if applied.is_err() {
                break;
            }
        }
        lock.release().await;
        applied
    }

    async fn apply_step(
        &self,
        step: &Step,
        lock: &MigrationLock,
        on_progress: OnProgress<'_>,
    ) -> Result<(), MongoError> {
        let report = |done, total| {
            let flow = on_progress(&Progress { step, done, total });
            match (flow, lock.is_held()) {
                (ControlFlow::Break(()), _) => Err(MongoError::Stopped),
                (_, false) => Err(MongoError::Migrating),
                _ => Ok(()),
            }
        };
        report(0, step.documents())?;
        match step.action() {
            Action::CreateCollection(name) => {
                let created = self.store.collections.database().create_collection(*name).await;
                created.or_else(|error| match crate::error::is_namespace_exists(&error) {
                    true => Ok(()),
                    false => Err(error.into()),
                })
            }
            Action::BuildIndex { problem, documents } => {
                build_index::build(&self.store, problem, *documents, &report).await
            }
            Action::RecordLayout { from } => version::write(&self.store.collections, *from).await,
            Action::ChangeTtl { topic, to, .. } => {
                let ttl_ms = to.map(to_bson);
                TtlChanger { store: &self.store, topic, ttl_ms, report: &report }.run().await
            }
        }
    }
}

/// Reports how many documents are done out of how many. Fails if the migration has to stop.
type Report<'a> = &'a (dyn Fn(u64, u64) -> Result<(), MongoError> + Send + Sync);
