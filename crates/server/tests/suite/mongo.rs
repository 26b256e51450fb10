//! The server on MongoDB, and what only MongoDB does. On which stores the other tests run is said in
//! `store`.
//!
//! | idea | file |
//! |---|---|
//! | the primary of a replica set is killed | `primary_killed` |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::print_stdout, reason = "how long a pause was is told, and never judged")]

mod primary_killed;
