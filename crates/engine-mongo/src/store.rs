//! What all parts of an open engine share.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::error::Error;
use mongodb::{Client, ClientSession};
use prombus_proto::{Clock, RandomSource, Topic};
use tokio::sync::Notify;

use crate::MongoOptions;
use crate::commit::topic_cache::TopicCache;
use crate::commit::topic_locks::TopicLocks;
use crate::connection::Connection;
use crate::connection::deployment::Deployment;
use crate::deletion::OwnDeletions;
use crate::in_flight::InFlight;
use crate::layout::collections::Collections;
use crate::layout::topic_document::TopicDocument;
use crate::read::causality::Causality;
use crate::retention::ttl_warnings::TtlWarnings;
use crate::state::location::StateLayout;
use crate::watch::topic_watchers::TopicWatchers;

/// An open database. Each part of the crate adds its operations in an `impl Store` block.
pub(crate) struct Store {
    pub(crate) client: Client,
    /// The application name that all gateways have in common.
    pub(crate) app_name: String,
    pub(crate) collections: Collections,
    pub(crate) deployment: Deployment,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn RandomSource>,
    pub(crate) causality: Causality,
    pub(crate) watchers: TopicWatchers,
    pub(crate) topic_locks: TopicLocks,
    pub(crate) topic_cache: TopicCache,
    pub(crate) in_flight: InFlight,
    pub(crate) poll_every: Duration,
    pub(crate) ttl_warnings: TtlWarnings,
    /// Notified when a topic was deleted.
    pub(crate) deletion_requested: Arc<Notify>,
    pub(crate) own_deletions: OwnDeletions,
}

impl Store {
    pub(crate) fn new(connection: Connection, options: &MongoOptions) -> Self {
        let Connection { client, app_name, database, deployment } = connection;
        let state_layout = StateLayout::new(options.state_kinds);
        Self {
            collections: Collections::new(database, deployment, state_layout),
            client,
            app_name,
            deployment,
            clock: options.clock.clone(),
            random: options.random.clone(),
            causality: Causality::default(),
            watchers: TopicWatchers::new(),
            topic_locks: TopicLocks::default(),
            topic_cache: TopicCache::default(),
            in_flight: InFlight::default(),
            poll_every: options.poll_every,
            ttl_warnings: TtlWarnings::default(),
            deletion_requested: Arc::default(),
            own_deletions: OwnDeletions::default(),
        }
    }

    /// Makes readers see every write acknowledged so far, including those that have not reached a
    /// majority.
    pub(crate) async fn catch_up(&self) -> Result<(), Error> {
        let mut session = self.client.start_session().causal_consistency(true).await?;
        let database = self.collections.database();
        database.run_command(doc! { "ping": 1 }).session(&mut session).await?;
        self.causality.advance_to(session.operation_time());
        Ok(())
    }

    pub(crate) async fn read_session(&self) -> Result<ClientSession, Error> {
        self.causality.session(&self.client).await
    }

    /// Returns the document of `topic`, or that of an empty topic if it does not exist or was deleted.
    pub(crate) async fn topic(
        &self,
        session: &mut ClientSession,
        topic: &Topic,
    ) -> Result<TopicDocument, Error> {
        let topics = self.collections.topics();
        let found = topics.find_one(doc! { "_id": topic.as_str() }).session(&mut *session).await?;
        let known = found.map(TopicDocument::visible);
        Ok(known.unwrap_or_else(|| TopicDocument::new(topic.as_str())))
    }

    /// Returns all topics that ever had an event and were not deleted since, ordered by name.
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
