//! Why the server ended a subscription.

use std::fmt;

/// Why a subscription ended although its client did not ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The topic was deleted, with all of its groups.
    TopicDeleted,
    /// The group was deleted.
    GroupDeleted,
    /// A reason that this version does not know.
    Other,
}

impl EndReason {
    /// The reasons that a server sends.
    pub const ALL: &'static [EndReason] = &[EndReason::TopicDeleted, EndReason::GroupDeleted];

    /// Returns the reason as written on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EndReason::TopicDeleted => "topic_deleted",
            EndReason::GroupDeleted => "group_deleted",
            EndReason::Other => "other",
        }
    }

    /// Parses a reason from the wire.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        let known = Self::ALL.iter().find(|reason| reason.as_str() == word);
        known.copied().unwrap_or(EndReason::Other)
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndReason::TopicDeleted => "the topic was deleted",
            EndReason::GroupDeleted => "the consumer group was deleted",
            EndReason::Other => "the server ended it",
        })
    }
}
