//! Writing what a batch comes to, within the session of its commit.

use std::collections::{BTreeMap, HashMap};

use mongodb::ClientSession;
use mongodb::bson::{Binary, Document, RawDocumentBuf, doc, spec::BinarySubtype};
use mongodb::error::Error;
use prombus_engine::{Durability, StateEntry, StateKey, Version};
use prombus_proto::Topic;

use crate::commit::plan::{Becomes, Plan};
use crate::error::is_duplicate_key;
use crate::layout::collections::{Collections, EVENTS, PARTS, TOPICS};
use crate::layout::topic_document::TopicDocument;
use crate::state::collection::{Place, Shelf};
use crate::state::document as state_document;

/// Why something was not written.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something unique is there already: an id, or a place that another gateway took.
    AlreadyThere,
    /// A topic does not end where it was assumed to.
    Outdated,
    /// What the driver or the server said.
    Driver(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match is_duplicate_key(&error) {
            true => Failure::AlreadyThere,
            false => Failure::Driver(error),
        }
    }
}

/// A command is one document, of at most 16 MiB; one statement of it is at most a bit over 1 MiB.
const COMMAND_BYTES: usize = 8 << 20;
const COMMAND_STATEMENTS: usize = 10_000;
/// What a statement needs besides its key and value.
const STATEMENT_BYTES: usize = 256;

const DUPLICATE_KEY: i32 = 11_000;

/// Writes of one commit.
pub(crate) struct Writer<'a> {
    pub(crate) collections: &'a Collections,
    pub(crate) session: &'a mut ClientSession,
    pub(crate) durability: Durability,
    pub(crate) in_transaction: bool,
}

impl Writer<'_> {
    /// Events, at their places behind the end of their topics, where nobody looks before the topics
    /// say so.
    pub(crate) async fn write_events(&mut self, plan: &mut Plan) -> Result<(), Failure> {
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

    /// Keyed state, each shelf by few commands.
    pub(crate) async fn write_state(
        &mut self,
        state: &BTreeMap<StateKey, Becomes>,
        version: Version,
    ) -> Result<(), Failure> {
        for shelf in Shelf::ALL {
            let mut puts = Statements::new("update", "updates");
            let mut deletes = Statements::new("delete", "deletes");
            for (key, becomes) in state {
                let place = Place::of(key);
                if place.shelf != shelf {
                    continue;
                }
                let bytes = key.as_bytes().len() * 3 + STATEMENT_BYTES;
                match becomes {
                    Becomes::Put { value, expires_at } => {
                        let entry = StateEntry {
                            key: key.clone(),
                            value: value.clone(),
                            version,
                            expires_at: *expires_at,
                        };
                        let document = state_document::encode(&place, &entry);
                        puts.add(put_of(&place, document), bytes + value.len());
                    }
                    Becomes::Deleted => deletes.add(delete_of(&place), bytes),
                    Becomes::StillAbsent => {
                        // Put and deleted again: whoever else puts something meanwhile collides.
                        let nothing = Binary { subtype: BinarySubtype::Generic, bytes: vec![] };
                        let document = doc! { "_id": &place.id, "value": nothing };
                        puts.add(put_of(&place, document), bytes);
                        deletes.add(delete_of(&place), bytes);
                    }
                }
            }
            for statements in [puts, deletes] {
                self.run(shelf.collection(), statements).await?;
            }
        }
        Ok(())
    }

    /// The new ends of topics that were not looked at, if they still are as `assumed`.
    pub(crate) async fn write_assumed_topics(
        &mut self,
        grown: &[(Topic, TopicDocument)],
        assumed: &HashMap<String, TopicDocument>,
    ) -> Result<(), Failure> {
        let mut statements = Statements::new("update", "updates");
        for (topic, end) in grown {
            let before = assumed.get(topic.as_str()).ok_or(Failure::Outdated)?;
            let statement = doc! { "q": before.unchanged(), "u": growth_to(end) };
            statements.add(statement, STATEMENT_BYTES * 2);
        }
        match self.run(TOPICS, statements).await? == grown.len() {
            true => Ok(()),
            false => Err(Failure::Outdated),
        }
    }

    /// The new ends of the topics: with them, the events are there.
    pub(crate) async fn write_topics(
        &mut self,
        grown: &[(Topic, TopicDocument)],
        guarded: &[Topic],
    ) -> Result<(), Failure> {
        let mut statements = Statements::new("update", "updates");
        for (topic, end) in grown {
            let query = doc! { "_id": topic.as_str() };
            let statement = doc! { "q": query, "u": growth_to(end), "upsert": true };
            statements.add(statement, STATEMENT_BYTES * 2);
        }
        // Alone, nobody can come between.
        for topic in guarded.iter().filter(|_| self.in_transaction) {
            let touch = doc! { "$inc": { "guarded": 1_i64 } };
            let statement = doc! { "q": { "_id": topic.as_str() }, "u": touch, "upsert": true };
            statements.add(statement, STATEMENT_BYTES * 2);
        }
        self.run(TOPICS, statements).await?;
        Ok(())
    }

    /// Runs all of them, and answers how many documents they met.
    async fn run(&mut self, collection: &str, statements: Statements) -> Result<usize, Failure> {
        let mut met = 0;
        for chunk in statements.chunks {
            let mut command = doc! { statements.command: collection, statements.list: chunk };
            if !self.in_transaction {
                command.insert("writeConcern", concern_document(self.durability));
            }
            let database = self.collections.database();
            let answer = database.run_command(command).session(&mut *self.session).await?;
            check(&answer)?;
            met += answer.get_i32("n").ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        }
        Ok(met)
    }
}

fn growth_to(end: &TopicDocument) -> Document {
    doc! { "$set": {
        "next": end.next,
        "bytes": end.bytes,
        "latestTs": end.latest_ts,
    } }
}

fn put_of(place: &Place, document: Document) -> Document {
    doc! { "q": { "_id": &place.id }, "u": document, "upsert": true }
}

fn delete_of(place: &Place) -> Document {
    doc! { "q": { "_id": &place.id }, "limit": 1 }
}

fn concern_document(durability: Durability) -> Document {
    match durability {
        Durability::Fsync => doc! { "w": "majority", "j": true },
        Durability::Buffered | Durability::Memory => doc! { "w": 1 },
    }
}

/// A command that was run may still say that a statement of it failed.
fn check(answer: &Document) -> Result<(), Failure> {
    let of_statement = answer.get_array("writeErrors").ok().and_then(|errors| errors.first());
    let of_statement = of_statement.and_then(|error| error.as_document());
    let of_concern = answer.get_document("writeConcernError").ok();
    let Some(error) = of_statement.or(of_concern) else { return Ok(()) };
    if error.get_i32("code").is_ok_and(|code| code == DUPLICATE_KEY) {
        return Err(Failure::AlreadyThere);
    }
    Err(Failure::Driver(Error::custom(error.get_str("errmsg").unwrap_or("unknown").to_owned())))
}

/// Statements of one command, in chunks that fit one.
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

    fn add(&mut self, statement: Document, bytes: usize) {
        self.bytes += bytes;
        match self.chunks.last_mut() {
            Some(chunk) if self.bytes <= COMMAND_BYTES && chunk.len() < COMMAND_STATEMENTS => {
                chunk.push(statement);
            }
            _ => {
                self.bytes = bytes;
                self.chunks.push(vec![statement]);
            }
        }
    }
}
