//! The scopes of a token: which actions it allows.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use prombus_proto::Topic;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use thiserror::Error;

use super::pattern::{InvalidPattern, TopicPattern};

/// An operation that needs permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    Publish(&'a Topic),
    /// Subscribe to the topic, read it, or settle deliveries from it.
    Subscribe(&'a Topic),
    /// Change settings or inspect the server.
    Admin,
}

/// One rule: `publish:PATTERN`, `subscribe:PATTERN` or `admin`. A leading `!` denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    denies: bool,
    covers: Permission,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Permission {
    Publish(TopicPattern),
    Subscribe(TopicPattern),
    Admin,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidRule {
    #[error(
        "a scope is `publish:PATTERN`, `subscribe:PATTERN` or `admin`, with a leading `!` to deny, \
         not {0:?}"
    )]
    Unknown(String),
    #[error("the scope {rule:?} has an invalid pattern: {reason}")]
    Pattern { rule: String, reason: InvalidPattern },
}

impl Rule {
    fn covers(&self, action: Action<'_>) -> bool {
        match (&self.covers, action) {
            (Permission::Publish(pattern), Action::Publish(topic))
            | (Permission::Subscribe(pattern), Action::Subscribe(topic)) => pattern.matches(topic),
            (Permission::Admin, Action::Admin) => true,
            _ => false,
        }
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;
    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let (denies, permission) = match text.strip_prefix('!') {
            Some(permission) => (true, permission),
            None => (false, text),
        };
        let pattern = |pattern: &str| {
            TopicPattern::new(pattern)
                .map_err(|reason| InvalidRule::Pattern { rule: text.to_owned(), reason })
        };
        let covers = match permission.split_once(':') {
            Some(("publish", topics)) => Permission::Publish(pattern(topics)?),
            Some(("subscribe", topics)) => Permission::Subscribe(pattern(topics)?),
            None if permission == "admin" => Permission::Admin,
            _ => return Err(InvalidRule::Unknown(text.to_owned())),
        };
        Ok(Self { denies, covers })
    }
}

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
                || ["!", "publish:", "subscribe:"].iter().any(|s| scope.starts_with(s))
        };
        let rules = scopes.0.iter().filter(is_ours).map(|scope| scope.parse());
        rules.collect::<Result<_, _>>().map(Self)
    }

    #[must_use]
    pub fn unrestricted() -> Self {
        let allow = |covers| Rule { denies: false, covers };
        Self(Arc::new([
            allow(Permission::Publish(TopicPattern::all_topics())),
            allow(Permission::Subscribe(TopicPattern::all_topics())),
            allow(Permission::Admin),
        ]))
    }

    #[must_use]
    pub fn allow(&self, action: Action<'_>) -> bool {
        self.0.iter().find(|rule| rule.covers(action)).is_some_and(|rule| !rule.denies)
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
mod tests {
    use super::*;

    fn scopes(text: &str) -> Scopes {
        Scopes::new(&text.into()).unwrap()
    }

    #[test]
    fn the_first_rule_that_covers_an_action_decides() {
        let (a, secret) = (Topic::new("a.b").unwrap(), Topic::new("secret.x").unwrap());
        use Action::*;
        for (rules, action, allowed) in [
            ("", Publish(&a), false),
            ("", Subscribe(&a), false),
            ("", Admin, false),
            ("publish:a.*", Publish(&a), true),
            ("publish:a.*", Publish(&secret), false),
            ("publish:a.*", Subscribe(&a), false),
            ("publish:a.*", Admin, false),
            ("subscribe:a.*", Subscribe(&a), true),
            ("subscribe:a.*", Publish(&a), false),
            ("admin", Admin, true),
            ("admin", Publish(&a), false),
            ("admin", Subscribe(&a), false),
            ("publish:** subscribe:**", Admin, false),
            ("!publish:secret.** publish:**", Publish(&a), true),
            ("!publish:secret.** publish:**", Publish(&secret), false),
            ("publish:** !publish:secret.**", Publish(&secret), true),
            ("!publish:secret.**", Publish(&a), false),
            ("!publish:** subscribe:**", Subscribe(&secret), true),
            ("publish:secret.x !publish:secret.** publish:**", Publish(&secret), true),
            ("!admin admin", Admin, false),
            ("publish:** subscribe:** !admin", Admin, false),
        ] {
            assert_eq!(scopes(rules).allow(action), allowed, "{rules:?} on {action:?}");
        }
    }

    #[test]
    fn unrestricted_allows_every_action() {
        let topic = Topic::new("dlq.a").unwrap();
        for action in [Action::Publish(&topic), Action::Subscribe(&topic), Action::Admin] {
            assert!(Scopes::unrestricted().allow(action), "{action:?}");
        }
        assert_eq!(Scopes::unrestricted(), scopes("publish:** subscribe:** admin"));
    }

    #[test]
    fn rejects_invalid_rules() {
        for bad in ["publish", "Publish:a", "read:a", "admin:a", "!", "!!admin", "admins", "*", ""]
        {
            let error = bad.parse::<Rule>().unwrap_err();
            assert_eq!(error, InvalidRule::Unknown(bad.to_owned()));
            assert!(error.to_string().contains("`publish:PATTERN`"), "{error}");
        }
        for bad in ["publish:", "subscribe:A", "!publish:a..b", "publish:a b", "publish:a:b"] {
            let error = bad.parse::<Rule>().unwrap_err();
            assert!(matches!(&error, InvalidRule::Pattern { rule, .. } if rule == bad), "{error}");
        }
    }

    #[test]
    fn ignores_scopes_of_other_services_but_not_misspelled_rules() {
        let foreign = "openid email https://x/scope publish:a admin read:b Publish:c publish";
        assert_eq!(Scopes::from_claim(&foreign.into()), Ok(scopes("publish:a admin")));
        for bad in ["publish:**  !publsh:secret", "!publish:Secret", "!read", "publish:"] {
            assert!(Scopes::from_claim(&bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn deserializes_from_a_list_or_a_string() {
        let expected = ScopeList::from(vec!["publish:a".to_owned(), "admin".to_owned()]);
        for json in [r#"["publish:a","admin"]"#, r#"" publish:a  admin""#] {
            assert_eq!(serde_json::from_str::<ScopeList>(json).unwrap(), expected, "{json}");
        }
        for json in ["1", "[1]", "{}", "null"] {
            assert!(serde_json::from_str::<ScopeList>(json).is_err(), "{json}");
        }
    }
}
