//! The client for programs in Rust.

pub mod transport;
