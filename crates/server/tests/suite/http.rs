//! The whole server, started in this process, as an HTTP client meets it.
//!
//! | idea | file |
//! |---|---|
//! | a client to test with | `client` |
//! | one event at a time, or many | `publishing`, `many_events` |
//! | bodies that are too large, too slow, or break off | `bodies` |
//! | limits of rate | `rates` |
//! | reading, page by page, all at once, as it comes | `replaying`, `exporting`, `streaming` |
//! | that all ways to read agree | `agreeing` |
//! | what is there | `topics`, `groups`, `latest_by_key` |
//! | settings of a topic | `topic_settings` |
//! | who may do what | `authorising`, `origins` |
//! | what is asked wrongly, and every error code | `bad_requests`, `error_codes` |
//! | the server itself, and its end | `health`, `stopping`, `encryption` |
//! | what it says of itself | `describing` |

#![expect(clippy::unwrap_used, reason = "what stands beside the tests fails as they do")]

mod agreeing;
mod authorising;
mod bad_requests;
mod bodies;
pub(crate) mod client;
mod describing;
mod encryption;
mod error_codes;
mod exporting;
mod groups;
mod health;
mod latest_by_key;
mod many_events;
mod metrics;
mod origins;
mod publishing;
mod rates;
mod replaying;
mod stopping;
mod streaming;
mod topic_settings;
mod topics;
