//! Tokens listed in the configuration.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use prombus_bus::Principal;
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::scope::Scopes;

/// Maps tokens to scopes.
///
/// Stores and compares digests only, in constant time: a lookup reveals neither whether the token
/// exists nor its index in the list.
#[derive(Default)]
pub struct StaticTokens {
    entries: Vec<KnownToken>,
}

/// What is known of one token.
pub struct KnownToken {
    digest: [u8; SHA256_OUTPUT_LEN],
    pub scopes: Scopes,
    /// Stays the same when the list of tokens changes.
    pub principal: Principal,
}

impl StaticTokens {
    /// Adds a token. Returns `false` if it is already present.
    #[must_use]
    pub fn add(&mut self, token: &str, scopes: Scopes) -> bool {
        if self.find(token).is_some() {
            return false;
        }
        let digest = digest_of(token);
        let principal = Principal::Token(identity(&digest));
        self.entries.push(KnownToken { digest, scopes, principal });
        true
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns what is known of a token.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<&KnownToken> {
        let digest = digest_of(token);
        let mut found = u64::MAX;
        for (index, entry) in (0u64..).zip(&self.entries) {
            found.conditional_assign(&index, entry.digest.ct_eq(&digest));
        }
        self.entries.get(usize::try_from(found).ok()?)
    }
}

fn digest_of(token: &str) -> [u8; SHA256_OUTPUT_LEN] {
    let mut bytes = [0; SHA256_OUTPUT_LEN];
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

/// Returns a name for a token that does not reveal it: the start of its digest.
fn identity(digest: &[u8; SHA256_OUTPUT_LEN]) -> Arc<str> {
    let hex: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    hex.into()
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticTokens({})", self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(text: &str) -> Scopes {
        Scopes::new(&text.into()).unwrap()
    }

    #[test]
    fn finds_exactly_the_added_tokens() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.is_empty());
        for name in ["first", "second", "third"] {
            assert!(tokens.add(name, scopes(&format!("publish:{name}"))));
        }
        assert!(!tokens.is_empty());
        for name in ["first", "second", "third"] {
            let known = tokens.find(name).unwrap();
            assert_eq!(known.scopes, scopes(&format!("publish:{name}")));
        }
        for other in ["", "firs", "first ", "First", "fourth", "secondthird"] {
            assert!(tokens.find(other).is_none(), "{other}");
        }
    }

    #[test]
    fn rejects_a_repeated_token() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.add("one", scopes("admin")));
        assert!(!tokens.add("one", scopes("publish:**")));
        assert_eq!(tokens.find("one").unwrap().scopes, scopes("admin"));
    }

    #[test]
    fn every_token_is_a_principal_of_its_own() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.add("one", scopes("admin")));
        assert!(tokens.add("two", scopes("admin")));
        let principal = |token: &str| tokens.find(token).unwrap().principal.clone();
        assert_eq!(principal("one"), principal("one"));
        assert_ne!(principal("one"), principal("two"));
        assert!(!format!("{:?}", principal("one")).contains("one"));
    }

    #[test]
    fn debug_output_hides_tokens_and_digests() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.add("one", scopes("admin")));
        assert_eq!(format!("{tokens:?}"), "StaticTokens(1)");
    }
}
