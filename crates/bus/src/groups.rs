//! Durable consumer groups.
//!
//! | what | where |
//! |---|---|
//! | a connection's handle to a group | `subscription`, which sends a `command` |
//! | the group as a pure state machine | `state`, with its `leases` and `members` |
//! | the task that runs it and does its I/O | `task` |
//! | how often an event is tried, and when | `retry` |
//! | where deliveries wait for their connection | `delivery_queue` |
//! | the groups in memory | `registry` |
//! | what operators do | `operating` |

mod command;
mod delivery_queue;
mod leases;
mod marks;
mod members;
mod operating;
mod registry;
mod retry;
mod state;
mod subscription;
mod task;

pub(crate) use command::Command;
pub use command::{Acked, AfterNack, Description, GroupInfo, MemberDetails, Nacked, WhyUnfinished};
pub(crate) use command::{Inspection, OldestOpen};
pub use delivery_queue::{Delivery, DeliveryQueue, EndedSubscription};
pub use leases::{MAX_WINDOW, MemberId};
pub use marks::AckedAndMarked;
pub(crate) use members::Member;
pub use operating::{GroupChange, SeekOptions, Sought};
pub(crate) use registry::Groups;
pub use retry::RetryDelays;
pub(crate) use retry::{RetryRules, allowed_attempts};
pub(crate) use subscription::dropped_reply;
pub use subscription::{GroupReply, SubscribeOptions, Subscription};
pub(crate) use task::{GroupContext, GroupTask};
