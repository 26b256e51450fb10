//! The storage engine over MongoDB: any number of gateways share one replica set.
//!
//! In reading order:
//!
//! - `engine`: [`MongoEngine`], the implementation of the engine contract.
//! - `options`, `connection`: the address, and what kind of deployment answers there.
//! - `store`: what every part of an open engine shares; `in_flight`: closing waits for running
//!   calls.
//! - `layout`: collections, indexes, the documents of topics and events, the version of the layout.
//! - `commit`: one transaction per batch, retried when another gateway was faster.
//! - `read`: pages, searches by time and id, and read-your-writes sessions.
//! - `state`: the keyed state, its collections and documents.
//! - `deletion`: removes what deleted topics leave behind.
//! - `retention`: trimming, and events that the servers remove at the end of their time to live.
//! - `watch`: how watchers learn that a topic grew.
//! - `migration`: `prombus migrate`; `inspection`: what `prombus doctor` looks at.
//! - `figures`: the size of the database.
//! - `error`: [`MongoError`], and how driver errors map to it.
//!
//! The layout, write concerns and limits are described in `docs/mongodb.md`; the reasons for them
//! in `docs/decisions/0010-mongodb.md`.

mod commit;
mod connection;
mod deletion;
mod engine;
mod error;
mod figures;
mod in_flight;
mod inspection;
mod layout;
mod migration;
mod options;
mod read;
mod retention;
mod state;
mod store;
mod watch;

pub use connection::connect;
pub use connection::deployment::Deployment;
pub use engine::MongoEngine;
pub use error::MongoError;
pub use inspection::{Inspection, Member};
pub use migration::{Migration, MigrationPlan, OnProgress, Progress, Step};
pub use options::{ChangeDetection, MongoOptions};
