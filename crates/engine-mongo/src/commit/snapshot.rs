//! Reads what a batch builds on, within the session of its commit.

use std::collections::{BTreeSet, HashMap};

use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::{ClientSession, Collection};
use prombus_engine::{Batch, Durability, StateEntry, StateKey};
use prombus_proto::Seq;

use super::{AttemptError, topics_of};
use crate::layout::collections::{EVENTS, PARTS, TOPICS};
use crate::layout::event_document::seq_of;
use crate::layout::numbers::{number_in, to_bson};
use crate::layout::topic_document::TopicDocument;
use crate::state::lookup::entries_of;
use crate::store::Store;

const IDS_PER_QUERY: usize = 10_000;

#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) topics: HashMap<String, TopicDocument>,
    pub(super) state: HashMap<StateKey, StateEntry>,
    /// The positions of ids of the batch that exist already, by topic and id. Empty unless the ids
    /// were looked up.
    pub(super) ids: HashMap<(String, String), Seq>,
}

impl Snapshot {
    /// Returns the document of a topic that the batch deletes, before it appends to it.
    pub(super) fn after_deletion(&self, name: &str) -> Option<TopicDocument> {
        let mut document = self.topics.get(name)?.clone();
        document.delete();
        Some(document)
    }
}

pub(super) struct SnapshotReader<'a> {
    pub(super) store: &'a Store,
    pub(super) session: &'a mut ClientSession,
    pub(super) durability: Durability,
    pub(super) in_transaction: bool,
}

impl SnapshotReader<'_> {
    /// Reads what `batch` builds on, except for topics that are `cached`.
    pub(super) async fn read(
        &mut self,
        batch: &Batch,
        cached: Option<HashMap<String, TopicDocument>>,
        looks_up_ids: bool,
    ) -> Result<Snapshot, AttemptError> {
        let topics = match cached {
            Some(topics) => topics,
            None => self.topics(batch).await?,
        };
        let mut snapshot = Snapshot { topics, ..Snapshot::default() };
        if !batch.state.is_empty() {
            let keys: BTreeSet<&StateKey> = batch.state.iter().map(|op| op.key()).collect();
            let keys: Vec<StateKey> = keys.into_iter().cloned().collect();
            let (collections, durability) = (&self.store.collections, self.durability);
            let in_transaction = self.in_transaction;
            let layout = collections.state_layout;
            snapshot.state = entries_of(self.session, layout, &keys, |name| {
                collections.for_commit(name, durability, in_transaction)
            })
            .await?;
        }
        if looks_up_ids {
            self.read_tails(batch, &mut snapshot).await?;
            self.read_ids(batch, &mut snapshot).await?;
        }
        Ok(snapshot)
    }

    fn collection<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        self.store.collections.for_commit(name, self.durability, self.in_transaction)
    }

    async fn topics(&mut self, batch: &Batch) -> Result<HashMap<String, TopicDocument>, Error> {
        let names: Vec<&str> = topics_of(batch).into_iter().collect();
        let mut found = HashMap::new();
        if names.is_empty() {
            return Ok(found);
        }
        let topics = self.collection::<TopicDocument>(TOPICS);
        let query = topics.find(doc! { "_id": { "$in": names } });
        let mut cursor = query.session(&mut *self.session).await?;
        while let Some(topic) = cursor.next(self.session).await {
            let topic = topic?;
            found.insert(topic.name.clone(), topic);
        }
        Ok(found)
    }

    /// Handles events at or after the recorded end of a topic. Without transactions a failed
    /// attempt left them behind, and they are deleted. With transactions a program that does not
    /// maintain `topics` wrote them, and they count.
    async fn read_tails(&mut self, batch: &Batch, snapshot: &mut Snapshot) -> Result<(), Error> {
        let names: BTreeSet<&str> =
            batch.events.iter().map(|event| event.topic().as_str()).collect();
        for name in names {
            let topic =
                snapshot.topics.entry(name.to_owned()).or_insert_with(|| TopicDocument::new(name));
            let tail = doc! { "topic": name, "seq": { "$gte": topic.next } };
            if !self.in_transaction {
                for collection in [PARTS, EVENTS] {
                    let documents = self.collection::<RawDocumentBuf>(collection);
                    documents.delete_many(tail.clone()).session(&mut *self.session).await?;
                }
                continue;
            }
            let last = self
                .collection::<RawDocumentBuf>(EVENTS)
                .find_one(tail)
                .sort(doc! { "topic": 1, "seq": -1 })
                .projection(doc! { "_id": 0, "seq": 1, "bytes": 1, "latestTs": 1, "storedAt": 1 })
                .session(&mut *self.session)
                .await?;
            if let Some(last) = last {
                topic.next = number_in(&last, "seq").unwrap_or(topic.next - 1) + 1;
                topic.bytes = number_in(&last, "bytes").unwrap_or(topic.bytes).max(topic.bytes);
                topic.latest_ts = number_in(&last, "latestTs").unwrap_or(0).max(topic.latest_ts);
                topic.stored_at = number_in(&last, "storedAt").max(topic.stored_at);
            }
        }
        Ok(())
    }

    /// Looks up the ids of the batch. Deletes matches that were trimmed but not yet removed.
    async fn read_ids(&mut self, batch: &Batch, snapshot: &mut Snapshot) -> Result<(), Error> {
        let mut ids_by_topic: HashMap<&str, Vec<String>> = HashMap::new();
        for event in &batch.events {
            ids_by_topic.entry(event.topic().as_str()).or_default().push(event.id().to_string());
        }
        let events = self.collection::<RawDocumentBuf>(EVENTS);
        for (name, mut ids) in ids_by_topic {
            ids.sort_unstable();
            ids.dedup();
            let is_deleted = batch.deleted_topics.iter().any(|topic| topic.as_str() == name);
            let first = snapshot
                .topics
                .get(name)
                .map_or(1, |topic| if is_deleted { topic.next } else { topic.first });
            let mut trimmed: Vec<i64> = Vec::new();
            for ids in ids.chunks(IDS_PER_QUERY) {
                let query = events
                    .find(doc! { "topic": name, "id": { "$in": ids } })
                    .projection(doc! { "_id": 0, "seq": 1, "id": 1 });
                let mut cursor = query.session(&mut *self.session).await?;
                while cursor.advance(self.session).await? {
                    let event = cursor.current();
                    let (Ok(id), Ok(seq)) = (event.get_str("id"), seq_of(event)) else { continue };
                    match to_bson(seq.0) < first {
                        true => trimmed.push(to_bson(seq.0)),
                        false => {
                            snapshot.ids.insert((name.to_owned(), id.to_owned()), seq);
                        }
                    }
                }
            }
            if !trimmed.is_empty() {
                let filter = doc! { "topic": name, "seq": { "$in": trimmed } };
                events.delete_many(filter).session(&mut *self.session).await?;
            }
        }
        Ok(())
    }
}
