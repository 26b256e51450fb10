//! Real MongoDB servers for tests and benchmarks: installed if missing, killed when they are
//! dropped or when the process that started them exits. Never shipped.

#![allow(clippy::unwrap_used, reason = "a test fails where something is not as expected")]

mod guard;
mod mongod;
mod replica_set;

pub use mongod::{Kind, Mongod, new_database, shared, stop_shared};
pub use replica_set::ReplicaSet;
