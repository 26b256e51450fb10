//! The layout of the database: its collections, their indexes, the documents of topics and events.

pub(crate) mod collections;
pub(crate) mod event_document;
pub(crate) mod indexes;
pub(crate) mod numbers;
pub(crate) mod topic_document;
pub(crate) mod version;
