//! The collections, and the read and write concerns they are used with.

use mongodb::bson::{Document, RawDocumentBuf};
use mongodb::options::{CollectionOptions, ReadConcern, WriteConcern};
use mongodb::{Collection, Database};
use prombus_engine::Durability;

use crate::connection::deployment::Deployment;
use crate::layout::topic_document::TopicDocument;
use crate::state::location::{StateCollection, StateLayout};

pub(crate) const EVENTS: &str = "events";
pub(crate) const PARTS: &str = "event_parts";
pub(crate) const TOPICS: &str = "topics";
pub(crate) const OUTBOX: &str = "outbox";
pub(crate) const STATE: &str = "state";
pub(crate) const ENGINE: &str = "engine";

/// The collections of one database.
#[derive(Clone, Debug)]
pub(crate) struct Collections {
    database: Database,
    read_concern: ReadConcern,
    pub(crate) state_layout: StateLayout,
}

impl Collections {
    pub(crate) fn new(
        database: Database,
        deployment: Deployment,
        state_layout: StateLayout,
    ) -> Self {
        // No election rolls back what a majority has, so no reader sees an event whose position is
        // assigned to another one later. A standalone server has no majority.
        let read_concern = match deployment.has_transactions() {
            true => ReadConcern::majority(),
            false => ReadConcern::local(),
        };
        Self { database, read_concern, state_layout }
    }

    pub(crate) const fn database(&self) -> &Database {
        &self.database
    }

    /// The names of all collections.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let state = self.state_layout.collections().map(StateCollection::name);
        let of_kinds = state.filter(|name| *name != STATE);
        [EVENTS, PARTS, TOPICS].into_iter().chain(of_kinds).chain([OUTBOX, STATE, ENGINE])
    }

    /// For reads that no election rolls back, and for writes that are durable when acknowledged.
    fn durable<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        let options = CollectionOptions::builder()
            .read_concern(self.read_concern.clone())
            .write_concern(write_concern(Durability::Fsync))
            .build();
        self.database.collection_with_options(name, options)
    }

    pub(crate) fn events(&self) -> Collection<RawDocumentBuf> {
        self.durable(EVENTS)
    }

    pub(crate) fn parts(&self) -> Collection<RawDocumentBuf> {
        self.durable(PARTS)
    }

    pub(crate) fn topics(&self) -> Collection<TopicDocument> {
        self.durable(TOPICS)
    }

    /// The collection `name` of keyed state.
    pub(crate) fn state(&self, name: &str) -> Collection<RawDocumentBuf> {
        self.durable(name)
    }

    /// The engine's own bookkeeping: the layout version, the commit counter, the migration lock.
    pub(crate) fn engine(&self) -> Collection<Document> {
        self.durable(ENGINE)
    }

    /// For a commit. A transaction brings its own concerns; without one, writes have the requested
    /// durability. Reads return the newest data, so that a commit builds on every acknowledged one.
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

/// The acknowledgement that `durability` requires.
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
