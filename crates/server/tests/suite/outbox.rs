//! `prombus outbox`: real workers on a real MongoDB, publishing to a real server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod calling;
mod database;
mod documents;
mod example;
mod killed;
mod leases;
mod ordering;
mod waking;
mod worker;
