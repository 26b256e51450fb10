//! Real MongoDB servers for tests and benchmarks: installed where they are missing, killed when they
//! are dropped. Never shipped.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, what is not as expected ends it; the place is what helps"
)]

mod mongod;

pub use mongod::{Kind, Mongod, end_shared, new_database, shared};
