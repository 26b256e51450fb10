//! Retention rules.

/// The retention rule of a topic. An event may be dropped when any limit is exceeded; without
/// limits, nothing is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Events that were stored more than this many milliseconds ago may be dropped.
    ///
    /// The time that counts is the engine's clock at their commit. Their `ts` does not: publishers choose
    /// it, and an event from 1970 is kept as long as any other.
    pub max_age_ms: Option<u64>,
    /// While the topic is larger than this, its oldest events may be dropped.
    pub max_bytes: Option<u64>,
    /// Orders the rules of a topic: a larger revision is newer. See
    /// [`Engine::retain`](crate::Engine::retain).
    pub revision: u64,
}
