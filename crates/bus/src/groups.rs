//! A durable consumer group: one task that owns its members, its leases and its cursor.

mod actor;
mod command;
mod dead_letter;
mod delivery_queue;
mod holding;
mod leases;
mod lending;
mod marking;
mod marks;
mod members;
mod reading;
mod registry;
mod round;
mod serving;
mod storing;
mod subscription;

pub(crate) use actor::{Actor, GroupContext};
pub(crate) use command::Command;
pub use command::{Acked, Description, Nacked};
pub use dead_letter::dead_letter_topic;
pub use delivery_queue::{Delivery, DeliveryQueue};
pub use leases::{MAX_WINDOW, MemberId};
pub(crate) use members::Member;
pub(crate) use registry::Groups;
pub use subscription::{GroupReply, SubscribeOptions, Subscription};
