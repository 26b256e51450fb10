//! Real MongoDB servers for tests and benchmarks: installed where they are missing, killed when they
//! are dropped or the process that started them ends. Never shipped.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, what is not as expected ends it; the place is what helps"
)]

mod guard;
mod mongod;
mod replica_set;

pub use mongod::{Kind, Mongod, end_shared, new_database, shared};
pub use replica_set::ReplicaSet;
