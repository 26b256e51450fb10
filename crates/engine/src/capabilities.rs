//! What an engine cannot do.

use crate::Durability;

/// What an engine can do, so that the layers above say so instead of pretending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// A commit over several topics and state is all or nothing. Without it, only the events of
    /// one topic are.
    pub atomic_across_topics: bool,
    /// Several processes may use one store at a time.
    pub several_gateways: bool,
    /// What was committed is there after a restart.
    pub survives_restart: bool,
    /// The most that a commit can be answered with.
    pub max_durability: Durability,
}
