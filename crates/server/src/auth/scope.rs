//! What a token allows.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use prombus_proto::Topic;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use thiserror::Error;

use super::pattern::{InvalidPattern, TopicPattern};

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Publish to the topic.
    Publish(&'a Topic),
    /// Subscribe to the topic, replay or export it, or settle what was lent from it.
    Subscribe(&'a Topic),
    /// Change settings or look into the server.
    Admin,
}

/// One rule: `publish:PATTERN`, `subscribe:PATTERN` or `admin`; with `!` before it, it denies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    denies: bool,
    covers: Covered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Covered {
    Publish(TopicPattern),
    Subscribe(TopicPattern),
    Admin,
}

/// Why a text is no rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidRule {
    /// None of the three kinds.
    #[error(
        "a scope is `publish:PATTERN`, `subscribe:PATTERN` or `admin`, with `!` before it to \
         deny, not {0:?}"
    )]
    Unknown(String),
    /// The right kind with a wrong pattern.
    #[error("the scope {rule:?} has no valid pattern: {reason}")]
    Pattern {
        /// The rule as it was written.
        rule: String,
        /// What is wrong with its pattern.
        reason: InvalidPattern,
    },
}

impl Rule {
    fn covers(&self, action: Action<'_>) -> bool {
        match (&self.covers, action) {
            (Covered::Publish(pattern), Action::Publish(topic))
            | (Covered::Subscribe(pattern), Action::Subscribe(topic)) => pattern.matches(topic),
            (Covered::Admin, Action::Admin) => true,
            _ => false,
        }
    }
}

impl FromStr for Rule {
    type Err = InvalidRule;
    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let (denies, what) = match text.strip_prefix('!') {
            Some(what) => (true, what),
            None => (false, text),
        };
        let pattern = |pattern: &str| {
            TopicPattern::new(pattern)
                .map_err(|reason| InvalidRule::Pattern { rule: text.to_owned(), reason })
        };
        let covers = match what.split_once(':') {
            Some(("publish", topics)) => Covered::Publish(pattern(topics)?),
            Some(("subscribe", topics)) => Covered::Subscribe(pattern(topics)?),
            None if what == "admin" => Covered::Admin,
            _ => return Err(InvalidRule::Unknown(text.to_owned())),
        };
        Ok(Self { denies, covers })
    }
}

/// Rules in their order. The first that covers an action decides; without one it is denied.
///
/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes(Arc<[Rule]>);

impl Scopes {
    /// Rules of ours: every word has to be one.
    pub fn new(words: &ScopeWords) -> Result<Self, InvalidRule> {
        words.0.iter().map(|word| word.parse()).collect::<Result<_, _>>().map(Self)
    }

    /// Rules of a token that others issued, which may carry words for other services, such as
    /// `openid`. Those grant nothing here and are passed over.
    ///
    /// What looks like a rule of ours has to be one: passing over a misspelt denial would allow
    /// what it was to deny.
    pub fn among(words: &ScopeWords) -> Result<Self, InvalidRule> {
        let is_ours = |word: &&String| {
            *word == "admin" || ["!", "publish:", "subscribe:"].iter().any(|s| word.starts_with(s))
        };
        words.0.iter().filter(is_ours).map(|word| word.parse()).collect::<Result<_, _>>().map(Self)
    }

    /// Everything.
    #[must_use]
    pub fn everything() -> Self {
        let allow = |covers| Rule { denies: false, covers };
        Self(Arc::new([
            allow(Covered::Publish(TopicPattern::every_topic())),
            allow(Covered::Subscribe(TopicPattern::every_topic())),
            allow(Covered::Admin),
        ]))
    }

    /// Whether the action is allowed.
    #[must_use]
    pub fn allow(&self, action: Action<'_>) -> bool {
        self.0.iter().find(|rule| rule.covers(action)).is_some_and(|rule| !rule.denies)
    }
}

/// Scopes as they are written: a list, or one text with spaces between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeWords(Vec<String>);

impl From<&str> for ScopeWords {
    fn from(text: &str) -> Self {
        Self(text.split_ascii_whitespace().map(str::to_owned).collect())
    }
}

impl From<Vec<String>> for ScopeWords {
    fn from(words: Vec<String>) -> Self {
        Self(words)
    }
}

impl<'de> Deserialize<'de> for ScopeWords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListOrText;
        impl<'de> Visitor<'de> for ListOrText {
            type Value = ScopeWords;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("scopes, as a list or as one text with spaces between them")
            }

            fn visit_str<E>(self, text: &str) -> Result<ScopeWords, E> {
                Ok(text.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ScopeWords, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(ScopeWords(words))
            }
        }
        deserializer.deserialize_any(ListOrText)
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
    fn everything_is_everything() {
        let topic = Topic::new("dlq.a").unwrap();
        for action in [Action::Publish(&topic), Action::Subscribe(&topic), Action::Admin] {
            assert!(Scopes::everything().allow(action), "{action:?}");
        }
        assert_eq!(Scopes::everything(), scopes("publish:** subscribe:** admin"));
    }

    #[test]
    fn refuses_what_is_no_rule() {
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
    fn words_of_other_services_are_passed_over_and_misspelt_rules_are_not() {
        let foreign = "openid email https://x/scope publish:a admin read:b Publish:c publish";
        assert_eq!(Scopes::among(&foreign.into()), Ok(scopes("publish:a admin")));
        for bad in ["publish:**  !publsh:secret", "!publish:Secret", "!read", "publish:"] {
            assert!(Scopes::among(&bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn are_written_as_list_or_text() {
        let expected = ScopeWords::from(vec!["publish:a".to_owned(), "admin".to_owned()]);
        for json in [r#"["publish:a","admin"]"#, r#"" publish:a  admin""#] {
            assert_eq!(serde_json::from_str::<ScopeWords>(json).unwrap(), expected, "{json}");
        }
        for json in ["1", "[1]", "{}", "null"] {
            assert!(serde_json::from_str::<ScopeWords>(json).is_err(), "{json}");
        }
    }
}
