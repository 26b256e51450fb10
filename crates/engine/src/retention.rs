//! Retention rules.

/// The retention rule of a topic. An event may be dropped when any limit is exceeded; without
/// limits, nothing is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Events whose timestamp is older than this many milliseconds may be dropped.
    pub max_age_ms: Option<u64>,
    /// While the topic is larger than this, its oldest events may be dropped.
    pub max_bytes: Option<u64>,
    /// Orders the rules of a topic: a larger revision is newer. See
    /// [`Engine::retain`](crate::Engine::retain).
    pub revision: u64,
}
