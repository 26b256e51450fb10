//! Notices what other gateways write.
//!
//! Every commit changes the documents of its topics, so one change stream over `topics` reports
//! everything. After a lost connection or an election the driver resumes the stream by its token.
//! If it cannot, a new stream is opened before all topics are read, so that no change falls in
//! between. While there is no stream, topics are polled.

use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::error::Error;
use prombus_proto::{Seq, Topic};

use crate::MongoError;
use crate::layout::collections::TOPICS;
use crate::layout::numbers::from_bson;
use crate::options::ChangeDetection;
use crate::store::Store;

type Changes = ChangeStream<ChangeStreamEvent<Document>>;

/// Reads where all topics end, and returns the task that follows them from there on.
pub(crate) async fn start(
    store: &Arc<Store>,
    detection: ChangeDetection,
) -> Result<impl Future<Output = ()> + Send + 'static, MongoError> {
    let changes = match detection {
        ChangeDetection::Polling => None,
        ChangeDetection::ChangeStream => open(store).await,
    };
    store.read_all_topics().await?;
    Ok(follow(Arc::downgrade(store), changes, detection))
}

async fn follow(store: Weak<Store>, mut changes: Option<Changes>, detection: ChangeDetection) {
    loop {
        if let Some(changes) = changes.take() {
            follow_changes(&store, changes).await;
        }
        let Some(store) = store.upgrade() else { return };
        if detection == ChangeDetection::ChangeStream {
            changes = open(&store).await;
        }
        store.own_deletions.clear();
        if let Err(error) = store.read_all_topics().await {
            tracing::warn!("cannot read what other gateways wrote: {error}; retrying");
        }
        if changes.is_none() {
            let pause = store.poll_every;
            drop(store);
            tokio::time::sleep(pause).await;
        }
    }
}

async fn open(store: &Store) -> Option<Changes> {
    match store.changes().await {
        Ok(changes) => Some(changes),
        Err(error) => {
            let error = MongoError::from(error);
            tracing::warn!("cannot open a change stream: {error}; polling instead");
            None
        }
    }
}

/// Forwards changes to the watchers until the stream ends.
async fn follow_changes(store: &Weak<Store>, mut changes: Changes) {
    loop {
        match changes.next().await {
            Some(Ok(change)) => {
                let Some(store) = store.upgrade() else { return };
                store.causality.advance_to(change.cluster_time);
                if let Some(topic) = deleted_topic_in(&change)
                    && !store.own_deletions.take_reported(topic.as_str())
                {
                    store.topic_cache.remove([topic.as_str()]);
                    store.watchers.end(&topic);
                }
                if let Some((topic, last)) = last_position_in(&change) {
                    store.topic_cache.remove_if_behind(&topic, last);
                    if !store.own_deletions.hold_back(topic.as_str(), last) {
                        store.watchers.notify(&topic, last);
                    }
                }
            }
            Some(Err(error)) => {
                tracing::warn!("the change stream failed: {error}; opening another one");
                return;
            }
            None => return,
        }
    }
}

/// Returns the topic that was deleted.
fn deleted_topic_in(change: &ChangeStreamEvent<Document>) -> Option<Topic> {
    let updated = change.update_description.as_ref().map(|update| &update.updated_fields);
    let is_deleted = updated.is_some_and(|fields| fields.contains_key("deletedAt"));
    let name = change.document_key.as_ref()?.get_str("_id").ok()?;
    is_deleted.then(|| Topic::new(name).ok()).flatten()
}

/// Returns the topic that grew and its last position.
fn last_position_in(change: &ChangeStreamEvent<Document>) -> Option<(Topic, Seq)> {
    let topic = Topic::new(change.document_key.as_ref()?.get_str("_id").ok()?).ok()?;
    let fields = match &change.update_description {
        Some(update) => &update.updated_fields,
        None => change.full_document.as_ref()?,
    };
    let next = fields.get_i64("next").ok()?;
    Some((topic, Seq(from_bson(next)).previous()))
}

impl Store {
    async fn changes(&self) -> Result<Changes, Error> {
        let filter = doc! { "$match": {
            "operationType": { "$in": ["insert", "update", "replace"] },
        } };
        let topics = self.collections.database().collection::<Document>(TOPICS);
        topics.watch().pipeline([filter]).await
    }

    /// Notifies the watchers of every topic's last position.
    async fn read_all_topics(&self) -> Result<(), MongoError> {
        loop {
            let endings = self.watchers.endings();
            let mut session = self.read_session().await?;
            let documents = self.topics(&mut session).await?;
            let positions = documents.iter().filter_map(|it| Some((it.topic()?, it.last())));
            // A topic that was deleted meanwhile may be among them.
            if self.watchers.replace_all(&positions.collect(), endings) {
                return Ok(());
            }
        }
    }
}
