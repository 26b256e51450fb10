//! The scopes of a token: which actions it allows.

use std::fmt;
use std::sync::Arc;

use prombus_proto::{Group, Topic};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::action::{Action, ActionKind};
use super::derived;
use super::pattern::NamePattern;
use super::rule::{Effect, InvalidRule, Reach, Rule, TOPIC_PREFIXES};

/// An ordered list of rules. The first rule that covers an action decides; an action that no rule
/// covers is denied. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes(Arc<[Rule]>);

impl Scopes {
    /// Parses scopes of which every one must be a rule.
    pub fn new(scopes: &ScopeList) -> Result<Self, InvalidRule> {
        scopes.0.iter().map(|scope| scope.parse()).collect::<Result<_, _>>().map(Self)
    }

    /// Parses the scopes of a signed token. It may contain scopes for other services, such as
    /// `openid`, which are ignored.
    ///
    /// A scope that looks like one of our rules must be valid: ignoring a misspelled denial would
    /// allow what it was meant to deny.
    pub fn from_claim(scopes: &ScopeList) -> Result<Self, InvalidRule> {
        let is_ours = |scope: &&String| {
            *scope == "admin"
                || scope.starts_with('!')
                || TOPIC_PREFIXES.iter().any(|prefix| scope.starts_with(prefix))
        };
        let rules = scopes.0.iter().filter(is_ours).map(|scope| scope.parse());
        rules.collect::<Result<_, _>>().map(Self)
    }

    #[must_use]
    pub fn unrestricted() -> Self {
        Self(Arc::new([Rule::unrestricted()]))
    }

    #[must_use]
    pub fn allow(&self, action: Action<'_>) -> bool {
        let mut rules = self.rules_for(action.kind(), action.group(), action.topic());
        rules.next().is_some_and(|rule| rule.effect == Effect::Allow)
    }

    /// Returns `true` if the topic may be consumed as some group, whichever that is.
    #[must_use]
    pub fn allow_some_group(&self, topic: &Topic) -> bool {
        let mut rules = self.rules_for(ActionKind::Consume, None, Some(topic));
        let decisive =
            rules.find(|rule| rule.effect == Effect::Allow || !rule.is_for_some_groups());
        decisive.is_some_and(|rule| rule.effect == Effect::Allow)
    }

    /// Returns the rules that cover an action, in order.
    fn rules_for<'a>(
        &'a self,
        kind: ActionKind,
        group: Option<&'a Group>,
        topic: Option<&'a Topic>,
    ) -> impl Iterator<Item = &'a Rule> {
        let names = topic.map(|topic| self.names_of(topic.as_str(), kind, group));
        self.0.iter().filter(move |rule| match (rule.reach(kind, group), &names) {
            (Reach::Nothing, _) | (Reach::Topics(_), None) => false,
            (Reach::All, _) => true,
            (Reach::Topics(pattern), Some(names)) => names.matched_by(pattern),
        })
    }

    /// Returns the names by which rules cover a topic: its own, and those of its origins.
    fn names_of<'a>(
        &'a self,
        topic: &'a str,
        kind: ActionKind,
        group: Option<&'a Group>,
    ) -> Names<'a> {
        if !derived::is_derived(topic) {
            return Names::One(topic);
        }
        let patterns = self.0.iter().filter_map(move |rule| match rule.reach(kind, group) {
            Reach::Topics(pattern) => Some(pattern),
            Reach::Nothing | Reach::All => None,
        });
        Names::Several(derived::lineage(topic, &patterns))
    }
}

/// The names of a topic. Most have one, for which nothing is allocated.
enum Names<'a> {
    One(&'a str),
    Several(Vec<&'a str>),
}

impl Names<'_> {
    fn matched_by(&self, pattern: &NamePattern) -> bool {
        match self {
            Self::One(name) => pattern.matches(name),
            Self::Several(names) => names.iter().any(|name| pattern.matches(name)),
        }
    }
}

/// Scopes before parsing. Written as a list, or as one string separated by spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeList(Vec<String>);

impl From<&str> for ScopeList {
    fn from(text: &str) -> Self {
        Self(text.split_ascii_whitespace().map(str::to_owned).collect())
    }
}

impl From<Vec<String>> for ScopeList {
    fn from(scopes: Vec<String>) -> Self {
        Self(scopes)
    }
}

impl<'de> Deserialize<'de> for ScopeList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrString;
        impl<'de> Visitor<'de> for ListOrString {
            type Value = ScopeList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("scopes, as a list or as one string separated by spaces")
            }

            fn visit_str<E>(self, text: &str) -> Result<ScopeList, E> {
                Ok(text.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ScopeList, A::Error> {
                let mut scopes = Vec::new();
                while let Some(scope) = list.next_element()? {
                    scopes.push(scope);
                }
                Ok(ScopeList(scopes))
            }
        }
        deserializer.deserialize_any(ListOrString)
    }
}

#[cfg(test)]
mod tests;
