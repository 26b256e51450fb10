//! The server behind the binary `prombus`: gateway, auth, configuration.

pub mod auth;
