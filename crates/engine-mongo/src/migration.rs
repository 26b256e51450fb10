//! Bringing a database to what this program needs: what is to be done, and doing it.
//!
//! | idea | file |
//! |---|---|
//! | what is to be done, in words and as JSON | `plan` |
//! | one at a time | `lock` |
//! | indexes | `build_index` |
//! | the time to live of topics | `change_ttl` |
//!
//! Everything may be stopped in the middle and done again. Nothing keeps gateways from publishing.

mod build_index;
mod change_ttl;
mod lock;
mod plan;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use mongodb::bson::{Document, doc};
use prombus_engine::{ReadError, StateEntry, StateKey};
use prombus_proto::Topic;

use crate::connection::Connected;
use crate::layout::collections::ALL;
use crate::layout::numbers::{from_bson, to_bson};
use crate::layout::topic_document::TopicDocument;
use crate::layout::version::LAYOUT;
use crate::layout::{indexes, version};
use crate::store::Store;
use crate::{MongoError, MongoOptions};
use change_ttl::TtlWork;
use lock::Lease;
use plan::Work;
pub use plan::{MigrationPlan, Step};

/// A database that is to be brought to what this program needs.
pub struct Migration {
    store: Store,
}

/// How far a step is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The step.
    pub step: &'a Step,
    /// Documents that are done.
    pub done: u64,
    /// About how many there are; nothing where nobody knows.
    pub total: u64,
}

/// Is told how far a migration is, and says whether to go on.
pub type Watcher<'a> = &'a (dyn Fn(&Progress<'_>) -> ControlFlow<()> + Send + Sync);

impl Migration {
    /// Connects, and changes nothing. Refuses what a newer version of this program made.
    pub async fn connect(options: &MongoOptions) -> Result<Self, MongoError> {
        let store = Store::over(Connected::to(options).await?, options);
        version::noted(&store.collections).await?;
        store.see_what_was_answered().await?;
        Ok(Self { store })
    }

    /// Whether gateways may go on while a time to live is changed. On a single server that is no
    /// replica set, an event that is committed in the very moment of the change may get the old one.
    #[must_use]
    pub const fn is_safe_while_in_use(&self) -> bool {
        self.store.deployment.has_transactions()
    }

    /// Keyed state whose key starts with `prefix`, as [`prombus_engine::Engine::scan`] gives it: all
    /// layouts have it in the same form.
    pub async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        self.store.scan(prefix, after, limit).await
    }

    /// What is to be done so that the database is as this program needs it, and every topic has the
    /// time to live, in milliseconds, that `wanted` says, or none. Changes nothing.
    pub async fn plan(&self, wanted: &BTreeMap<Topic, u64>) -> Result<MigrationPlan, MongoError> {
        let database = self.store.collections.database();
        let noted = version::noted(&self.store.collections).await?;
        let there = database.list_collection_names().await?;
        let missing = ALL.into_iter().filter(|name| !there.iter().any(|other| other == name));
        let mut work: Vec<Work> = missing.map(Work::Collection).collect();
        for flaw in indexes::flaws(database).await? {
            let collection = database.collection::<Document>(flaw.collection());
            let documents = collection.estimated_document_count().await?;
            work.push(Work::Index { flaw, documents });
        }
        if noted != Some(LAYOUT) {
            work.push(Work::Layout { from: noted });
        }
        let mut known = self.topics().await?;
        for topic in wanted.keys() {
            known.entry(topic.clone()).or_insert_with(|| TopicDocument::new(topic.as_str()));
        }
        for (topic, known) in known {
            let to = wanted.get(&topic).copied();
            if known.ttl_change.is_some() || known.ttl_ms != to.map(to_bson) {
                work.push(Work::Ttl {
                    events: known.bounds().count(),
                    from: known.ttl_ms.map(from_bson),
                    to,
                    topic,
                    goes_on: known.ttl_change.is_some(),
                });
            }
        }
        Ok(MigrationPlan::new(database.name(), noted, work))
    }

    async fn topics(&self) -> Result<BTreeMap<Topic, TopicDocument>, MongoError> {
        let mut found = self.store.collections.topics().find(doc! {}).await?;
        let mut topics = BTreeMap::new();
        while found.advance().await? {
            let known = found.deserialize_current()?;
            if let Some(topic) = known.topic() {
                topics.insert(topic, known);
            }
        }
        Ok(topics)
    }

    /// Does what `plan` says, step by step. Waits for another one that is at work.
    pub async fn apply(
        &self,
        plan: &MigrationPlan,
        watcher: Watcher<'_>,
    ) -> Result<(), MongoError> {
        if plan.steps().is_empty() {
            return Ok(());
        }
        let lease = Lease::take(&self.store).await?;
        let mut done = Ok(());
        for step in plan.steps() {
            done = self.take(step, &lease, watcher).await;
            if done.is_err() {
                break;
            }
        }
        lease.give_back().await;
        done
    }

    async fn take(
        &self,
        step: &Step,
        lease: &Lease,
        watcher: Watcher<'_>,
    ) -> Result<(), MongoError> {
        let report = |done, total| {
            let answer = watcher(&Progress { step, done, total });
            match (answer, lease.is_held()) {
                (ControlFlow::Break(()), _) => Err(MongoError::Stopped),
                (_, false) => Err(MongoError::Migrating),
                _ => Ok(()),
            }
        };
        report(0, step.documents())?;
        match step.work() {
            Work::Collection(name) => {
                let made = self.store.collections.database().create_collection(*name).await;
                made.or_else(|error| match crate::error::is_there_already(&error) {
                    true => Ok(()),
                    false => Err(error.into()),
                })
            }
            Work::Index { flaw, documents } => {
                build_index::mend(&self.store, flaw, *documents, &report).await
            }
            Work::Layout { from } => version::note(&self.store.collections, *from).await,
            Work::Ttl { topic, to, .. } => {
                let wanted = to.map(to_bson);
                TtlWork { store: &self.store, topic, wanted, report: &report }.bring().await
            }
        }
    }
}

/// Tells how many are done of how many, and says whether that was the end.
type Report<'a> = &'a (dyn Fn(u64, u64) -> Result<(), MongoError> + Send + Sync);
