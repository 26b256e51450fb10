//! The whole server, started in this process, as an HTTP client meets it.
//!
//! | idea | file |
//! |---|---|
//! | a client to test with | `client` |
//! | one event at a time | `publishing` |
//! | what is asked wrongly | `bad_requests` |
//! | the server itself | `health` |

#![expect(clippy::unwrap_used, reason = "what stands beside the tests fails as they do")]

mod bad_requests;
mod client;
mod health;
mod publishing;
