//! The engine.

use std::sync::Arc;

use async_trait::async_trait;
use mongodb::Client;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use prombus_engine::{
    Batch, Bounds, Capabilities, CommitError, Committed, Condition, Engine, Health, Page,
    ReadBudget, ReadError, Retention, StateEntry, StateKey, Unavailable,
};
use prombus_proto::{EventId, Seq, Timestamp, Topic};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::causality::Causality;
use crate::collections::Collections;
use crate::deployment::Deployment;
use crate::ends::Ends;
use crate::error::of_read;
use crate::gate::Gate;
use crate::growth::Growth;
use crate::store::Store;
use crate::sweeping::sweep_from_time_to_time;
use crate::turns::Turns;
use crate::versions::Versions;
use crate::{MongoError, MongoOptions, indexes, tailing};

const DATABASE_UNLESS_SAID: &str = "prombus";
/// The driver's own ten are few: one belongs to the change stream, and commits that wait for a disk
/// hold theirs.
const CONNECTIONS_UNLESS_SAID: u32 = 100;
/// The layout of the database; raised with every change that older programs cannot read.
const LAYOUT: i64 = 1;

/// Events and state in MongoDB. Any number of them may use one database, if it is a replica set.
pub struct MongoEngine {
    store: Arc<Store>,
    /// What goes on by itself, and ends with the engine.
    behind: Vec<JoinHandle<()>>,
}

impl MongoEngine {
    /// Connects, and makes what is missing of collections and indexes.
    pub async fn open(options: &MongoOptions) -> Result<Self, MongoError> {
        let mut connection = parse(&options.url).await?;
        let app_name = connection.app_name.get_or_insert_with(|| DATABASE_UNLESS_SAID.to_owned());
        let app_name = app_name.clone();
        connection.max_pool_size.get_or_insert(CONNECTIONS_UNLESS_SAID);
        let client = Client::with_options(connection)?;
        let database = match &options.database {
            Some(name) => client.database(name),
            None => {
                client.default_database().unwrap_or_else(|| client.database(DATABASE_UNLESS_SAID))
            }
        };
        let deployment = Deployment::of(&database).await?;
        let store = Arc::new(Store {
            collections: Collections::of(database, deployment),
            client,
            app_name,
            deployment,
            clock: options.clock.clone(),
            chance: options.chance.clone(),
            causality: Causality::default(),
            growth: Growth::new(),
            turns: Turns::default(),
            ends: Ends::default(),
            versions: Versions::default(),
            gate: Gate::default(),
            poll_every: options.poll_every,
        });
        check_layout(&store).await?;
        indexes::make(store.collections.database()).await?;
        let mut behind = vec![tokio::spawn(sweep_from_time_to_time(Arc::downgrade(&store)))];
        let follow = tailing::begin(&store, options.tail).await?;
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

/// What the driver makes of the address. What it says of a bad one may repeat it, password and all.
pub(crate) async fn parse(url: &str) -> Result<ClientOptions, MongoError> {
    ClientOptions::parse(url).await.map_err(|error| {
        let said = MongoError::from(error).to_string();
        let secret = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        match secret {
            Some((secret, _)) if !secret.is_empty() => {
                let parts = secret.split(':').filter(|part| !part.is_empty());
                let hidden = parts.fold(said, |said, part| said.replace(part, "***"));
                MongoError::InvalidAddress(hidden)
            }
            _ => MongoError::InvalidAddress(said),
        }
    })
}

/// Notes the layout in a new database, and refuses a newer one.
async fn check_layout(store: &Store) -> Result<(), MongoError> {
    let engine = store.collections.engine();
    let noted = engine
        .find_one_and_update(
            doc! { "_id": "layout" },
            doc! { "$setOnInsert": { "version": LAYOUT } },
        )
        .upsert(true)
        .await?;
    let found = noted.and_then(|layout| layout.get_i64("version").ok()).unwrap_or(LAYOUT);
    match found > LAYOUT {
        true => Err(MongoError::NewerLayout { found, supported: LAYOUT }),
        false => Ok(()),
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
