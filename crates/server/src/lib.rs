//! The Prombus server: the library behind the `prombus` binary.
//!
//! The server opens an engine, starts a bus on it, and serves the bus to clients over WebSocket and HTTP.
//! In reading order:
//!
//! - [`config`]: settings from file, environment and flags, validated and typed
//! - [`logging`]: log lines on stderr
//! - [`server`]: starts and stops everything below
//! - [`reload`]: replaces tokens, keys and certificates of a running server; `swap` holds what is replaced
//! - `phase`: what the server tells all its connections
//! - [`readable_secrets`]: warns of secrets that other users can read
//! - [`threads`]: the threads that serve connections
//! - [`descriptors`]: file descriptors for the store, and how many connections the rest allows
//! - `accept`: accepts connections on both ports, with TLS and the connection limit
//! - `tls`: the certificate of the server, and those of its clients
//! - [`access`]: who may connect and what they may do, as configured now
//! - [`auth`]: who may publish and subscribe to what: static tokens, JWT, certificates, scopes, origins
//! - [`gateway`]: the WebSocket protocol: one session per connection
//! - [`http`]: the HTTP API: publish, replay, export, stream, topics, groups, health, metrics
//! - `span_export`: sends OpenTelemetry spans to a collector
//! - `notices`: log lines about clients that are refused or closed
//! - [`mongo_address`]: a MongoDB connection string that never prints its password
//! - [`retention`]: the retention of each topic of a database, for `prombus migrate`
//!
//! The command line, `cli/`, belongs to the binary: one module per subcommand.

mod accept;
pub mod access;
pub mod auth;
pub mod config;
pub mod descriptors;
pub mod gateway;
pub mod http;
pub mod logging;
pub mod mongo_address;
mod notices;
mod phase;
pub mod readable_secrets;
pub mod reload;
pub mod retention;
pub mod server;
mod span_export;
mod swap;
pub mod threads;
mod tls;
