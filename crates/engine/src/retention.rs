//! How long a topic keeps its events.

/// What a topic keeps. An event goes when any limit says so; without limits, nothing goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Events whose `ts` is further back than this may go.
    pub max_age_ms: Option<u64>,
    /// What makes the topic larger than this may go, oldest first.
    pub max_bytes: Option<u64>,
    /// Which rule is newer: the one with the larger number.
    pub revision: u64,
}
