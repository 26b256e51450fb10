//! Tokens listed in the configuration.

use std::fmt;

use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::grant::Grant;
use super::token_digest::TokenDigest;

/// Maps tokens to what they allow.
///
/// Stores and compares digests only, in constant time: a lookup reveals neither whether the token
/// exists nor its index in the list.
#[derive(Default)]
pub struct StaticTokens {
    entries: Vec<Entry>,
}

struct Entry {
    digest: TokenDigest,
    grant: Grant,
}

impl StaticTokens {
    /// Adds a token. Returns `false` if it is already present.
    #[must_use]
    pub fn add(&mut self, digest: TokenDigest, grant: Grant) -> bool {
        if self.find(&digest).is_some() {
            return false;
        }
        self.entries.push(Entry { digest, grant });
        true
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns what the token with this digest allows.
    #[must_use]
    pub fn find(&self, digest: &TokenDigest) -> Option<&Grant> {
        let mut found = u64::MAX;
        for (index, entry) in (0u64..).zip(&self.entries) {
            found.conditional_assign(&index, entry.digest.ct_eq(digest));
        }
        self.entries.get(usize::try_from(found).ok()?).map(|entry| &entry.grant)
    }
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticTokens({})", self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::scope::Scopes;

    fn grant(name: &str) -> Grant {
        let scopes = Scopes::new(&format!("publish:{name}").as_str().into()).unwrap();
        Grant::of_token(name, scopes)
    }

    #[test]
    fn finds_exactly_the_added_tokens() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.is_empty());
        for name in ["first", "second", "third"] {
            assert!(tokens.add(TokenDigest::of(name), grant(name)));
        }
        assert!(!tokens.is_empty());
        for name in ["first", "second", "third"] {
            assert_eq!(tokens.find(&TokenDigest::of(name)), Some(&grant(name)));
        }
        for other in ["", "firs", "first ", "First", "fourth", "secondthird"] {
            assert_eq!(tokens.find(&TokenDigest::of(other)), None, "{other}");
        }
    }

    #[test]
    fn rejects_a_repeated_token() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.add(TokenDigest::of("one"), grant("a")));
        assert!(!tokens.add(TokenDigest::of("one"), grant("b")));
        assert_eq!(tokens.find(&TokenDigest::of("one")), Some(&grant("a")));
    }

    #[test]
    fn debug_output_hides_tokens_and_digests() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.add(TokenDigest::of("one"), grant("a")));
        assert_eq!(format!("{tokens:?}"), "StaticTokens(1)");
    }
}
