//! The collections, and how safely they are read and written.

use mongodb::bson::{Document, RawDocumentBuf};
use mongodb::options::{CollectionOptions, ReadConcern, WriteConcern};
use mongodb::{Collection, Database};
use prombus_engine::Durability;

use crate::connection::deployment::Deployment;
use crate::layout::topic_document::TopicDocument;

pub(crate) const EVENTS: &str = "events";
pub(crate) const PARTS: &str = "event_parts";
pub(crate) const TOPICS: &str = "topics";
pub(crate) const CURSORS: &str = "cursors";
pub(crate) const DEDUPE: &str = "dedupe";
pub(crate) const OUTBOX: &str = "outbox";
pub(crate) const STATE: &str = "state";
pub(crate) const ENGINE: &str = "engine";

pub(crate) const ALL: [&str; 8] = [EVENTS, PARTS, TOPICS, CURSORS, DEDUPE, OUTBOX, STATE, ENGINE];

/// All of them, in one database.
#[derive(Clone, Debug)]
pub(crate) struct Collections {
    database: Database,
    read: ReadConcern,
}

impl Collections {
    pub(crate) fn of(database: Database, deployment: Deployment) -> Self {
        // What a majority has is what no election takes back, so no reader sees an event whose place
        // another one gets later. A single server without a replica set knows no majority.
        let read = match deployment.has_transactions() {
            true => ReadConcern::majority(),
            false => ReadConcern::local(),
        };
        Self { database, read }
    }

    pub(crate) const fn database(&self) -> &Database {
        &self.database
    }

    /// For reading, and for what is safe when it is answered.
    fn safe<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        let options = CollectionOptions::builder()
            .read_concern(self.read.clone())
            .write_concern(write_concern(Durability::Fsync))
            .build();
        self.database.collection_with_options(name, options)
    }

    pub(crate) fn events(&self) -> Collection<RawDocumentBuf> {
        self.safe(EVENTS)
    }

    pub(crate) fn parts(&self) -> Collection<RawDocumentBuf> {
        self.safe(PARTS)
    }

    pub(crate) fn topics(&self) -> Collection<TopicDocument> {
        self.safe(TOPICS)
    }

    /// Keyed state, by the name of its collection.
    pub(crate) fn state(&self, name: &str) -> Collection<RawDocumentBuf> {
        self.safe(name)
    }

    /// What the engine keeps of itself.
    pub(crate) fn engine(&self) -> Collection<Document> {
        self.safe(ENGINE)
    }

    /// For a commit: within a transaction, which has concerns of its own, or without one, as safe as
    /// it asks for. It reads the newest there is, so that its expectations see what was answered.
    pub(crate) fn for_commit<T: Send + Sync>(
        &self,
        name: &str,
        durability: Durability,
        in_transaction: bool,
    ) -> Collection<T> {
        if in_transaction {
            return self.database.collection(name);
        }
        let options = CollectionOptions::builder()
            .read_concern(ReadConcern::local())
            .write_concern(write_concern(durability))
            .build();
        self.database.collection_with_options(name, options)
    }
}

/// What has to be acknowledged before an answer.
pub(crate) fn write_concern(durability: Durability) -> WriteConcern {
    match durability {
        Durability::Fsync => {
            let mut concern = WriteConcern::majority();
            concern.journal = Some(true);
            concern
        }
        Durability::Buffered | Durability::Memory => WriteConcern::nodes(1),
    }
}
