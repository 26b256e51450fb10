//! Writes the plan of a commit, within its session.

use std::collections::{BTreeMap, HashMap};

use mongodb::ClientSession;
use mongodb::bson::{Binary, Document, RawDocumentBuf, doc, spec::BinarySubtype};
use mongodb::error::Error;
use prombus_engine::{Durability, StateEntry, StateKey, Version};
use prombus_proto::Topic;

use super::AttemptError;
use super::plan::{CommitPlan, StateChange};
use crate::deletion::deletion_update;
use crate::error::DUPLICATE_KEY;
use crate::layout::collections::{Collections, EVENTS, PARTS, TOPICS};
use crate::layout::topic_document::TopicDocument;
use crate::state::document as state_document;

/// A command is one document of at most 16 MiB; one of its statements is at most a bit over 1 MiB.
const MAX_COMMAND_BYTES: usize = 8 << 20;
const MAX_STATEMENTS: usize = 10_000;
/// What a statement needs besides its key and value.
const STATEMENT_OVERHEAD_BYTES: usize = 256;
const TOPIC_STATEMENT_BYTES: usize = 512;

pub(super) struct Writer<'a> {
    pub(super) collections: &'a Collections,
    pub(super) session: &'a mut ClientSession,
    pub(super) durability: Durability,
    pub(super) in_transaction: bool,
}

impl Writer<'_> {
    /// Writes the events after the end of their topics. Nobody reads them before the topics include
    /// them.
    pub(super) async fn write_events(&mut self, plan: &mut CommitPlan) -> Result<(), AttemptError> {
        let parts = std::mem::take(&mut plan.parts);
        let events = std::mem::take(&mut plan.events);
        for (name, documents) in [(PARTS, parts), (EVENTS, events)] {
            if documents.is_empty() {
                continue;
            }
            let collection = self.collections.for_commit::<RawDocumentBuf>(
                name,
                self.durability,
                self.in_transaction,
            );
            collection.insert_many(documents).session(&mut *self.session).await?;
        }
        Ok(())
    }

    /// Writes keyed state with few commands for each collection.
    pub(super) async fn write_state(
        &mut self,
        state: &BTreeMap<StateKey, StateChange>,
        version: Version,
    ) -> Result<(), AttemptError> {
        let layout = self.collections.state_layout;
        for collection in layout.collections() {
            let mut puts = Statements::new("update", "updates");
            let mut deletes = Statements::new("delete", "deletes");
            for (key, change) in state {
                let location = layout.locate(key);
                if location.collection != collection {
                    continue;
                }
                let id = &location.id;
                let bytes = key.as_bytes().len() * 3 + STATEMENT_OVERHEAD_BYTES;
                match change {
                    StateChange::Put { value, expires_at } => {
                        let entry = StateEntry {
                            key: key.clone(),
                            value: value.clone(),
                            version,
                            expires_at: *expires_at,
                        };
                        let document = state_document::encode(&location, &entry);
                        puts.push(put_statement(id, document), bytes + value.len());
                    }
                    StateChange::Delete => deletes.push(delete_statement(id), bytes),
                    StateChange::KeepAbsent => {
                        // Put and deleted again, so that a concurrent put of the key collides.
                        let empty = Binary { subtype: BinarySubtype::Generic, bytes: vec![] };
                        let document = doc! { "_id": id, "value": empty };
                        puts.push(put_statement(id, document), bytes);
                        deletes.push(delete_statement(id), bytes);
                    }
                }
            }
            for statements in [puts, deletes] {
                self.run(collection.name(), statements).await?;
            }
        }
        Ok(())
    }

    /// Writes topics that were not read, provided that they are still as `cached`.
    pub(super) async fn write_cached_topics(
        &mut self,
        appended: &[(Topic, TopicDocument)],
        cached: &HashMap<String, TopicDocument>,
    ) -> Result<(), AttemptError> {
        let mut statements = Statements::new("update", "updates");
        for (topic, document) in appended {
            let before = cached.get(topic.as_str()).ok_or(AttemptError::StaleCache)?;
            let statement = doc! { "q": before.unchanged_filter(), "u": append_update(document) };
            statements.push(statement, TOPIC_STATEMENT_BYTES);
        }
        match self.run(TOPICS, statements).await? == appended.len() {
            true => Ok(()),
            false => Err(AttemptError::StaleCache),
        }
    }

    /// Writes the new ends of the topics, which makes the events visible, and the ends of those that are deleted.
    pub(super) async fn write_topics(&mut self, plan: &CommitPlan) -> Result<(), AttemptError> {
        let CommitPlan { appended, deleted, guarded, .. } = plan;
        let mut statements = Statements::new("update", "updates");
        for document in deleted {
            let query = doc! { "_id": document.name.as_str() };
            let update = deletion_update(document, Document::new());
            let statement = doc! { "q": query, "u": update };
            statements.push(statement, TOPIC_STATEMENT_BYTES);
        }
        for (topic, document) in appended {
            let query = doc! { "_id": topic.as_str() };
            let update = match plan.deletes(topic) {
                true => deletion_update(document, appended_fields(document)),
                false => append_update(document),
            };
            let statement = doc! { "q": query, "u": update, "upsert": true };
            statements.push(statement, TOPIC_STATEMENT_BYTES);
        }
        // Without transactions there is only this gateway, and it commits one batch at a time.
        for topic in guarded.iter().filter(|_| self.in_transaction) {
            let touch = doc! { "$inc": { "guarded": 1_i64 } };
            let statement = doc! { "q": { "_id": topic.as_str() }, "u": touch, "upsert": true };
            statements.push(statement, TOPIC_STATEMENT_BYTES);
        }
        self.run(TOPICS, statements).await?;
        Ok(())
    }

    /// Runs all statements. Returns how many documents they matched.
    async fn run(
        &mut self,
        collection: &str,
        statements: Statements,
    ) -> Result<usize, AttemptError> {
        let mut matched = 0;
        for chunk in statements.chunks {
            let mut command = doc! { statements.command: collection, statements.list: chunk };
            if !self.in_transaction {
                command.insert("writeConcern", write_concern_document(self.durability));
            }
            let database = self.collections.database();
            let reply = database.run_command(command).session(&mut *self.session).await?;
            check(&reply)?;
            matched += reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        }
        Ok(matched)
    }
}

fn append_update(document: &TopicDocument) -> Document {
    doc! { "$set": appended_fields(document) }
}

fn appended_fields(document: &TopicDocument) -> Document {
    let mut fields = doc! {
        "next": document.next,
        "bytes": document.bytes,
        "latestTs": document.latest_ts,
        "storedAt": document.stored_at,
    };
    if let Some(floor) = document.expiry_floor {
        fields.insert("expiryFloor", floor);
    }
    fields
}

fn put_statement(id: &str, document: Document) -> Document {
    doc! { "q": { "_id": id }, "u": document, "upsert": true }
}

fn delete_statement(id: &str) -> Document {
    doc! { "q": { "_id": id }, "limit": 1 }
}

fn write_concern_document(durability: Durability) -> Document {
    match durability {
        Durability::Fsync => doc! { "w": "majority", "j": true },
        Durability::Buffered | Durability::Memory => doc! { "w": 1 },
    }
}

/// Fails if the reply of a successful command reports a failed statement.
fn check(reply: &Document) -> Result<(), AttemptError> {
    let write_error = reply.get_array("writeErrors").ok().and_then(|errors| errors.first());
    let write_error = write_error.and_then(|error| error.as_document());
    let concern_error = reply.get_document("writeConcernError").ok();
    let Some(error) = write_error.or(concern_error) else { return Ok(()) };
    if error.get_i32("code").is_ok_and(|code| code == DUPLICATE_KEY) {
        return Err(AttemptError::DuplicateKey);
    }
    let message = error.get_str("errmsg").unwrap_or("unknown").to_owned();
    Err(AttemptError::Driver(Error::custom(message)))
}

/// Statements of one command, in chunks of at most one command each.
struct Statements {
    command: &'static str,
    list: &'static str,
    chunks: Vec<Vec<Document>>,
    bytes: usize,
}

impl Statements {
    fn new(command: &'static str, list: &'static str) -> Self {
        Self { command, list, chunks: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, statement: Document, bytes: usize) {
        self.bytes += bytes;
        match self.chunks.last_mut() {
            Some(chunk) if self.bytes <= MAX_COMMAND_BYTES && chunk.len() < MAX_STATEMENTS => {
                chunk.push(statement);
            }
            _ => {
                self.bytes = bytes;
                self.chunks.push(vec![statement]);
            }
        }
    }
}
