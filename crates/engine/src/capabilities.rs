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
    /// Commits may be handed over while others are under way: they are stored in the order in which
    /// their futures were first polled, and those that wait together by one write. Without it, one
    /// commit at a time is best, with all that waits in it.
    pub gathers_commits: bool,
    /// The most that a commit can be answered with.
    pub max_durability: Durability,
}
