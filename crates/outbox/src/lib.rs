//! The transactional outbox: services write events beside their data, in one transaction of their
//! own database, and workers publish them.
//!
//! Any number of workers share one collection. `docs/outbox.md` describes what they guarantee, and
//! why.
//!
//! In reading order:
//!
//! - `worker`: [`Worker`] finds, claims, publishes and settles documents; `worker/topic_queue`
//!   fills the frames of one topic.
//! - `collection`: [`Outbox`], the queries and updates; its indexes and its change stream.
//! - `order`: which documents may be sent without overtaking others of their key.
//! - `document`: a document as an event, its payload as JSON, and what became of it.
//! - `options`, `notice`, `error`: what a worker is given, and what it reports.

mod collection;
mod document;
mod error;
mod notice;
mod options;
mod order;
mod worker;

pub use collection::Outbox;
pub use error::OutboxError;
pub use notice::{Notice, Summary};
pub use options::{OutboxLocation, Until, WorkerOptions};
pub use prombus_engine_mongo::ChangeDetection;
pub use worker::Worker;
