//! The commands of the binary, run against real servers.

mod backing_up;
mod benching;
mod choosing;
mod closed_pipes;
mod connecting;
mod contexts;
mod damaged;
mod dead_letters;
mod deleting;
mod doctor;
mod exporting;
mod groups;
mod importing;
mod on_a_terminal;
mod operating_groups;
mod proxy;
mod publishing;
mod reconnecting;
mod reference;
mod reloading;
mod replaying;
pub(crate) mod server;
mod subscribing;
mod terminal;
mod times;
mod topics;
