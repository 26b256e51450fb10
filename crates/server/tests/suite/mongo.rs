//! The server on MongoDB, and what only MongoDB does. On which stores the other tests run is said in
//! `store`.
//!
//! | idea | file |
//! |---|---|
//! | the primary of a replica set is killed | `primary_killed` |
//! | several gateways, and one of them is killed | `gateways_killed` |
//! | a gateway is taken for dead, and is not | `gateway_frozen` |
//! | what publishers and consumers know | `ledger` |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::print_stdout, reason = "how long a pause was is told, and never judged")]

mod gateway_frozen;
mod gateways_killed;
mod ledger;
mod primary_killed;
