//! The whole server, started in this process, as an HTTP client meets it.
//!
//! | idea | file |
//! |---|---|
//! | a client to test with | `client` |
//! | one event at a time | `publishing` |
//! | what is asked wrongly | `bad_requests` |
//! | reading, page by page, all at once, as it comes | `replaying`, `exporting`, `streaming` |
//! | that all ways to read agree | `agreeing` |
//! | the server itself, and what it says of itself | `health`, `describing` |

#![expect(clippy::unwrap_used, reason = "what stands beside the tests fails as they do")]

mod agreeing;
mod bad_requests;
mod client;
mod describing;
mod exporting;
mod health;
mod publishing;
mod replaying;
mod streaming;
