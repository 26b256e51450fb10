//! The commands of the binary, run against real servers.

mod benching;
mod connecting;
mod damaged;
mod exporting;
mod groups;
mod importing;
mod proxy;
mod publishing;
mod reloading;
mod replaying;
pub(crate) mod server;
mod subscribing;
mod topics;
