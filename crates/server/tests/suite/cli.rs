//! `prombus publish` and `prombus subscribe`, as a shell runs them against a server.

mod connecting;
mod publishing;
mod server;
mod subscribing;
