//! The layout of the database.
//!
//! - `collections`: the collections, and their read and write concerns.
//! - `indexes`: expected and actual indexes.
//! - `topic_document`, `event_document`: topics and events as documents.
//! - `version`: the version of the layout.
//! - `numbers`: conversions between unsigned numbers and BSON.

pub(crate) mod collections;
pub(crate) mod event_document;
pub(crate) mod indexes;
pub(crate) mod numbers;
pub(crate) mod topic_document;
pub(crate) mod version;
