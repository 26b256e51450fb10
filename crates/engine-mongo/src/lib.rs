//! The engine over MongoDB: any number of gateways on one replica set.
//!
//! | idea | file |
//! |---|---|
//! | what it connects to, and what that can do | `options`, `connecting`, `deployment` |
//! | collections, their indexes and their layout | `collections`, `indexes`, `layout`, `migration` |
//! | one topic, one event, one entry of state as documents | `topic_document`, `event_document`, `state_document`, `state_place` |
//! | the one door in | `commit`, `staging`, `writing`, `turns`, `ends`, `versions`, `abandoned` |
//! | reading and places | `reading`, `halving`, `state_reading`, `causality` |
//! | what is forgotten | `forgetting`, `expiry`, `expiring`, `sweeping` |
//! | wake-ups | `growth`, `tailing` |
//! | what the driver says, and what to do about it | `error`, `warned` |
//!
//! The layout, write concerns and limits are in `docs/mongodb.md`; why it is so in
//! `docs/decisions/0010-mongodb.md`.

mod abandoned;
mod causality;
mod collections;
mod commit;
mod connecting;
mod deployment;
mod ends;
mod engine;
mod error;
mod event_document;
mod expiring;
mod expiry;
mod forgetting;
mod gate;
mod growth;
mod halving;
mod indexes;
mod layout;
mod migration;
mod numbers;
mod options;
mod reading;
mod staging;
mod state_document;
mod state_place;
mod state_reading;
mod store;
mod sweeping;
mod tailing;
mod topic_document;
mod turns;
mod versions;
mod warned;
mod writing;

pub use connecting::connect;
pub use deployment::Deployment;
pub use engine::MongoEngine;
pub use error::MongoError;
pub use migration::{Migration, MigrationPlan, Progress, Step, Watcher};
pub use options::{MongoOptions, Tail};
