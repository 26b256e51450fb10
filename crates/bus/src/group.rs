//! A durable consumer group: one task that owns its members, its leases and its cursor.

mod actor;
mod command;
mod holding;
mod lending;
mod marking;
mod members;
mod reading;
mod round;
mod serving;
mod storing;

pub(crate) use actor::{Actor, Surroundings};
pub(crate) use command::Command;
pub use command::{Acked, Description, Nacked};
pub(crate) use members::Member;
