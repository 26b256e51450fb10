//! What all parts of an open engine share.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::error::Error;
use mongodb::{Client, ClientSession};
use prombus_proto::{Clock, RandomSource, Topic};

use crate::MongoOptions;
use crate::commit::topic_cache::Ends;
use crate::commit::topic_locks::Turns;
use crate::connection::Connected;
use crate::connection::deployment::Deployment;
use crate::in_flight::Gate;
use crate::layout::collections::Collections;
use crate::layout::topic_document::TopicDocument;
use crate::read::causality::Causality;
use crate::retention::ttl_warnings::Warned;
use crate::watch::topic_watchers::Growth;

/// A database in use.
pub(crate) struct Store {
    pub(crate) client: Client,
    /// What the servers know all gateways by.
    pub(crate) app_name: String,
    pub(crate) collections: Collections,
    pub(crate) deployment: Deployment,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn RandomSource>,
    pub(crate) causality: Causality,
    pub(crate) growth: Growth,
    pub(crate) turns: Turns,
    pub(crate) ends: Ends,
    pub(crate) gate: Gate,
    pub(crate) poll_every: Duration,
    pub(crate) warned: Warned,
}

impl Store {
    pub(crate) fn over(connected: Connected, options: &MongoOptions) -> Self {
        let Connected { client, app_name, database, deployment } = connected;
        Self {
            collections: Collections::of(database, deployment),
            client,
            app_name,
            deployment,
            clock: options.clock.clone(),
            random: options.random.clone(),
            causality: Causality::default(),
            growth: Growth::new(),
            turns: Turns::default(),
            ends: Ends::default(),
            gate: Gate::default(),
            poll_every: options.poll_every,
            warned: Warned::default(),
        }
    }

    /// From now on readers see what was answered to anybody until now, also what a majority has not got
    /// yet.
    pub(crate) async fn see_what_was_answered(&self) -> Result<(), Error> {
        let mut session = self.client.start_session().causal_consistency(true).await?;
        let database = self.collections.database();
        database.run_command(doc! { "ping": 1 }).session(&mut session).await?;
        self.causality.reached(session.operation_time());
        Ok(())
    }

    /// A session for reading.
    pub(crate) async fn reader(&self) -> Result<ClientSession, Error> {
        self.causality.session(&self.client).await
    }

    /// A topic as it is, or as it is before its first event.
    pub(crate) async fn topic(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
    ) -> Result<TopicDocument, Error> {
        let topics = self.collections.topics();
        let found = topics.find_one(doc! { "_id": topic.as_str() }).session(&mut *session).await?;
        Ok(found.unwrap_or_else(|| TopicDocument::new(topic.as_str())))
    }

    /// All topics that ever had an event, in order of their names.
    pub(crate) async fn topics(
        &self,
        session: &mut ClientSession,
    ) -> Result<Vec<TopicDocument>, Error> {
        let topics = self.collections.topics();
        let query = topics.find(TopicDocument::with_events()).sort(doc! { "_id": 1 });
        let mut found = query.session(&mut *session).await?;
        let mut all = Vec::new();
        while let Some(topic) = found.next(session).await {
            all.push(topic?);
        }
        Ok(all)
    }
}
