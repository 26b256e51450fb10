//! The operations that need permission.

use std::fmt;

use prombus_proto::{Group, Topic};

/// An operation that needs permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Read the events and the settings of the topic.
    Read(&'a Topic),
    /// Join the group, settle its deliveries, use its marks, see its progress.
    Consume {
        topic: &'a Topic,
        group: &'a Group,
    },
    Publish(&'a Topic),
    /// Change the settings of the topic.
    Manage(&'a Topic),
    /// Inspect the server as a whole.
    Admin,
}

/// An [`Action`] without its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionKind {
    Read,
    Consume,
    Publish,
    Manage,
    Admin,
}

impl<'a> Action<'a> {
    #[must_use]
    pub const fn kind(self) -> ActionKind {
        match self {
            Self::Read(_) => ActionKind::Read,
            Self::Consume { .. } => ActionKind::Consume,
            Self::Publish(_) => ActionKind::Publish,
            Self::Manage(_) => ActionKind::Manage,
            Self::Admin => ActionKind::Admin,
        }
    }

    #[must_use]
    pub const fn topic(self) -> Option<&'a Topic> {
        match self {
            Self::Read(topic)
            | Self::Consume { topic, .. }
            | Self::Publish(topic)
            | Self::Manage(topic) => Some(topic),
            Self::Admin => None,
        }
    }

    #[must_use]
    pub const fn group(self) -> Option<&'a Group> {
        match self {
            Self::Consume { group, .. } => Some(group),
            _ => None,
        }
    }
}

impl ActionKind {
    /// Returns the word that scopes and audit lines use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Consume => "consume",
            Self::Publish => "publish",
            Self::Manage => "manage",
            Self::Admin => "admin",
        }
    }
}

/// For the messages of refusals.
impl fmt::Display for Action<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(topic) => write!(f, "read {topic}"),
            Self::Consume { topic, group } => write!(f, "consume {topic} as {group}"),
            Self::Publish(topic) => write!(f, "publish to {topic}"),
            Self::Manage(topic) => write!(f, "manage {topic}"),
            Self::Admin => f.write_str("administer the server"),
        }
    }
}
