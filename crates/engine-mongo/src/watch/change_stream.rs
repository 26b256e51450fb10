//! What other gateways wrote.
//!
//! Every commit changes the documents of its topics, so one change stream over `topics` tells all.
//! The driver resumes it by its token after a lost connection or an election. Where it cannot, a new
//! one is opened first and all topics are read behind that: nothing falls between. While there is
//! none, topics are read again and again.

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
use crate::options::Tail;
use crate::store::Store;

type Changes = ChangeStream<ChangeStreamEvent<Document>>;

/// Learns where all topics end, and gives what follows from there on.
pub(crate) async fn begin(
    store: &Arc<Store>,
    tail: Tail,
) -> Result<impl Future<Output = ()> + Send + 'static, MongoError> {
    let changes = match tail {
        Tail::Polling => None,
        Tail::ChangeStream => opened(store).await,
    };
    store.learn_all_ends().await?;
    Ok(follow(Arc::downgrade(store), changes, tail))
}

async fn follow(store: Weak<Store>, mut changes: Option<Changes>, tail: Tail) {
    loop {
        if let Some(changes) = changes.take() {
            follow_changes(&store, changes).await;
        }
        let Some(store) = store.upgrade() else { return };
        if tail == Tail::ChangeStream {
            changes = opened(&store).await;
        }
        if let Err(error) = store.learn_all_ends().await {
            tracing::warn!("cannot see what other gateways wrote, trying again: {error}");
        }
        if changes.is_none() {
            let pause = store.poll_every;
            drop(store);
            tokio::time::sleep(pause).await;
        }
    }
}

async fn opened(store: &Store) -> Option<Changes> {
    match store.changes().await {
        Ok(changes) => Some(changes),
        Err(error) => {
            let error = MongoError::from(error);
            tracing::warn!("no change stream, asking for changes instead: {error}");
            None
        }
    }
}

/// Tells of changes until there are no more to come.
async fn follow_changes(store: &Weak<Store>, mut changes: Changes) {
    loop {
        match changes.next().await {
            Some(Ok(change)) => {
                let Some(store) = store.upgrade() else { return };
                store.causality.reached(change.cluster_time);
                if let Some((topic, last)) = growth_in(&change) {
                    store.ends.heard(&topic, last);
                    store.growth.tell(&topic, last);
                }
            }
            Some(Err(error)) => {
                tracing::warn!("the change stream broke, opening another: {error}");
                return;
            }
            None => return,
        }
    }
}

/// Which topic grew, and how far.
fn growth_in(change: &ChangeStreamEvent<Document>) -> Option<(Topic, Seq)> {
    let topic = Topic::new(change.document_key.as_ref()?.get_str("_id").ok()?).ok()?;
    let changed = match &change.update_description {
        Some(update) => &update.updated_fields,
        None => change.full_document.as_ref()?,
    };
    let next = changed.get_i64("next").ok()?;
    Some((topic, Seq(from_bson(next)).previous()))
}

impl Store {
    async fn changes(&self) -> Result<Changes, Error> {
        let wanted = doc! { "$match": {
            "operationType": { "$in": ["insert", "update", "replace"] },
        } };
        let topics = self.collections.database().collection::<Document>(TOPICS);
        topics.watch().pipeline([wanted]).await
    }

    async fn learn_all_ends(&self) -> Result<(), MongoError> {
        let mut session = self.reader().await?;
        for known in self.topics(&mut session).await? {
            if let Some(topic) = known.topic() {
                self.growth.tell(&topic, known.last());
            }
        }
        Ok(())
    }
}
