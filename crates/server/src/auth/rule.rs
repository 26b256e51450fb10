//! One rule of a token, such as `publish:orders.*`.

use std::str::FromStr;

use prombus_proto::Group;
use thiserror::Error;

use super::action::ActionKind;
use super::pattern::{InvalidPattern, NamePattern};

/// A permission, or with a leading `!` its denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) effect: Effect,
    permission: Permission,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Allow,
    Deny,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Permission {
    Read(NamePattern),
    Consume {
        topics: NamePattern,
        /// `None` for every group.
        groups: Option<NamePattern>,
    },
    Publish(NamePattern),
    Manage(NamePattern),
    /// Read, and consume as every group.
    Subscribe(NamePattern),
    Admin,
}

/// What a rule says about actions of one kind.
pub(super) enum Reach<'a> {
    /// Nothing.
    Nothing,
    /// Something about every action.
    All,
    /// Something about the actions on topics that match.
    Topics(&'a NamePattern),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidRule {
    #[error(
        "a scope is `read:TOPIC`, `consume:TOPIC`, `consume:TOPIC/GROUP`, `publish:TOPIC`, \
         `manage:TOPIC`, `subscribe:TOPIC` or `admin`, with a leading `!` to deny, not {0:?}"
    )]
    Unknown(String),
    #[error("the scope {rule:?} has an invalid pattern: {reason}")]
    Pattern { rule: String, reason: InvalidPattern },
}

/// What a scope starts with if it is a permission for topics.
pub(super) const TOPIC_PREFIXES: [&str; 5] =
    ["read:", "consume:", "publish:", "manage:", "subscribe:"];

impl Rule {
    /// The only rule of a client that may do everything.
    pub(super) fn unrestricted() -> Self {
        Self { effect: Effect::Allow, permission: Permission::Admin }
    }

    /// Returns which topics the rule covers for actions of this kind. `group` is the group of a
    /// consumer.
    pub(super) fn reach(&self, kind: ActionKind, group: Option<&Group>) -> Reach<'_> {
        use Permission::{Admin, Consume, Manage, Publish, Read, Subscribe};
        match (&self.permission, kind) {
            // The administrator may do everything. A denial takes only the server-wide rights away.
            (Admin, ActionKind::Admin) => Reach::All,
            (Admin, _) if self.effect == Effect::Allow => Reach::All,
            (Read(topics) | Subscribe(topics), ActionKind::Read)
            | (Subscribe(topics), ActionKind::Consume)
            | (Publish(topics), ActionKind::Publish)
            | (Manage(topics), ActionKind::Manage) => Reach::Topics(topics),
            (Consume { topics, groups }, ActionKind::Consume) => match (groups, group) {
                (Some(groups), Some(group)) if !groups.matches(group.as_str()) => Reach::Nothing,
                _ => Reach::Topics(topics),
            },
            _ => Reach::Nothing,
        }
    }

    /// Returns `true` if the rule is about some of the groups of a topic only.
    pub(super) const fn is_for_some_groups(&self) -> bool {
        matches!(self.permission, Permission::Consume { groups: Some(_), .. })
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;
    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let (effect, permission) = match text.strip_prefix('!') {
            Some(permission) => (Effect::Deny, permission),
            None => (Effect::Allow, text),
        };
        let pattern = |pattern: &str| {
            NamePattern::new(pattern)
                .map_err(|reason| InvalidRule::Pattern { rule: text.to_owned(), reason })
        };
        let permission = match permission.split_once(':') {
            Some(("read", topics)) => Permission::Read(pattern(topics)?),
            Some(("consume", members)) => match members.split_once('/') {
                Some((topics, groups)) => {
                    Permission::Consume { topics: pattern(topics)?, groups: Some(pattern(groups)?) }
                }
                None => Permission::Consume { topics: pattern(members)?, groups: None },
            },
            Some(("publish", topics)) => Permission::Publish(pattern(topics)?),
            Some(("manage", topics)) => Permission::Manage(pattern(topics)?),
            Some(("subscribe", topics)) => Permission::Subscribe(pattern(topics)?),
            None if permission == "admin" => Permission::Admin,
            _ => return Err(InvalidRule::Unknown(text.to_owned())),
        };
        Ok(Self { effect, permission })
    }
}
