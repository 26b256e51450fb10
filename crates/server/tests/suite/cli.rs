//! The commands that talk to a server, as a shell runs them.

mod benching;
mod connecting;
mod exporting;
mod groups;
mod importing;
mod proxy;
mod publishing;
mod replaying;
pub(crate) mod server;
mod subscribing;
mod topics;
