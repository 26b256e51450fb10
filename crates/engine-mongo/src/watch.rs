//! How watchers of a topic learn that it grew, here or at another gateway.

pub(crate) mod change_stream;
pub(crate) mod topic_watchers;
