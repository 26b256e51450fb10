//! What an engine supports.

use crate::Durability;

/// What an engine supports. The layers above report a missing capability instead of faking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// A commit is atomic over several topics and state. Without it, only the events of one topic
    /// are stored atomically.
    pub atomic_across_topics: bool,
    /// Several processes may use the same store at a time.
    pub several_gateways: bool,
    /// Committed data is still there after a restart.
    pub survives_restart: bool,
    /// The engine does group commit: callers may start commits while others are in progress. They
    /// are stored in the order in which their futures were first polled, and commits that wait
    /// together share one write. Without it, callers should have one commit in progress and put
    /// everything that waits into the next one.
    pub gathers_commits: bool,
    /// The highest durability that a commit can reach.
    pub max_durability: Durability,
}
