//! The whole server, started in this process, seen through HTTP.
//!
//! - [`client`]: the client of these tests
//! - [`publish`], [`publish_ndjson`]: one event, or many per request
//! - [`bodies`], [`rate_limits`]: bodies that are too large or too slow, and clients that are too fast
//! - [`replay`], [`export`], [`stream`], [`latest_by_key`]: reading
//! - [`read_consistency`]: every way to read returns the same events
//! - [`damaged`]: reading around events that cannot be read back
//! - [`backup`]: a copy of the store
//! - [`topics`], [`topic_settings`], [`groups`]: listing and configuring; [`deleting`]: deleting and purging
//! - [`operating_groups`], [`dead_letters`]: moving and changing groups, and what they gave up
//! - [`authorization`], [`tickets`], [`origins`], [`headers`], [`tls`]: tokens, web pages, headers, encryption
//! - [`bad_requests`], [`error_codes`]: invalid requests, and every error code
//! - [`places`], [`unread`]: connections above the limits, and connections that only hold a place
//! - [`ndjson_memory`]: many events per request, when memory or tokens are short
//! - [`health`], [`metrics`], [`description`], [`shutdown`]: the server itself

#![expect(clippy::unwrap_used, reason = "test helpers fail like the tests that call them")]

mod authorization;
mod backup;
mod bad_requests;
mod bodies;
pub(crate) mod client;
mod damaged;
mod dead_letters;
mod deleting;
mod description;
mod error_codes;
mod export;
mod groups;
mod headers;
mod health;
mod latest_by_key;
mod memory;
pub(crate) mod metrics;
mod ndjson_memory;
mod operating_groups;
mod origins;
mod places;
mod publish;
mod publish_ndjson;
mod rate_limits;
mod read_consistency;
mod replay;
mod shutdown;
mod stream;
mod tickets;
mod tls;
mod topic_settings;
mod topics;
mod unread;
