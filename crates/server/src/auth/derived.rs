//! Topics that the server derives from another one: dead letters and snapshots.
//!
//! They hold the events of their origin, so a rule for the origin covers them as well, unless another
//! rule names them.

use super::pattern::NamePattern;

/// How a topic is derived from its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Derivation {
    /// `dlq.T`, the dead letters of `T`.
    DeadLetters,
    /// `T.snapshot`, the snapshots of `T`.
    Snapshot,
}

impl Derivation {
    const ALL: [Self; 2] = [Self::DeadLetters, Self::Snapshot];

    /// Returns the topic that `topic` is derived from, if it is derived in this way.
    fn origin(self, topic: &str) -> Option<&str> {
        match self {
            Self::DeadLetters => topic.strip_prefix("dlq."),
            Self::Snapshot => topic.strip_suffix(".snapshot"),
        }
    }

    /// Returns `true` if the pattern is about topics that are derived in this way. A pattern that
    /// starts with a star matches dead letters only because it matches everything.
    fn is_named_in(self, pattern: &NamePattern) -> bool {
        match self {
            Self::DeadLetters => pattern.starts_with("dlq"),
            Self::Snapshot => pattern.ends_with("snapshot"),
        }
    }
}

/// Returns the topic and the topics it is derived from, except those behind a derivation that one of
/// the patterns names. A rule covers the topic if its pattern matches any of them.
pub(super) fn lineage<'a, 'p>(
    topic: &'a str,
    patterns: &(impl Iterator<Item = &'p NamePattern> + Clone),
) -> Vec<&'a str> {
    let mut lineage = vec![topic];
    let mut next = 0;
    while let Some(&topic) = lineage.get(next) {
        next += 1;
        for derivation in Derivation::ALL {
            let Some(origin) = derivation.origin(topic) else { continue };
            let is_named = |pattern: &'p NamePattern| {
                derivation.is_named_in(pattern) && pattern.matches(topic)
            };
            // Dead letters of a snapshot are reached in two ways.
            if !lineage.contains(&origin) && !patterns.clone().any(is_named) {
                lineage.push(origin);
            }
        }
    }
    lineage
}

/// Returns `true` if the topic is derived from another one.
pub(super) fn is_derived(topic: &str) -> bool {
    Derivation::ALL.into_iter().any(|derivation| derivation.origin(topic).is_some())
}
