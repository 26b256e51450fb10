//! The server on MongoDB, for what only MongoDB does. `store` says on which stores the other tests
//! run.
//!
//! - `primary_killed`: the primary of a replica set is killed.
//! - `gateways_killed`: one of several gateways is killed.
//! - `gateway_frozen`: a gateway is taken for dead, and is not.
//! - `topic_deleted`: one of three gateways deletes a topic that all of them use.
//! - `group_deleted`: a group is deleted and begins again, before other gateways know.
//! - `operators`: operators at any of three gateways, which are killed.
//! - `ledger`: what publishers and consumers know.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::print_stdout, reason = "pauses are printed, but not asserted")]

mod gateway_frozen;
mod gateways_killed;
mod group_deleted;
mod ledger;
mod operators;
mod primary_killed;
mod topic_deleted;
