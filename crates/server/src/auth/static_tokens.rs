//! Tokens that stand in the configuration.

use std::fmt;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::scope::Scopes;

/// Tokens and what each allows.
///
/// Only digests are kept and compared: a token that is asked for costs the same time whatever its
/// length, whether it is known or not, and wherever it stands in the list.
#[derive(Default)]
pub struct StaticTokens {
    known: Vec<Known>,
}

struct Known {
    digest: [u8; SHA256_OUTPUT_LEN],
    scopes: Scopes,
}

impl StaticTokens {
    /// Adds a token. Says `false` and adds nothing if it is there already.
    #[must_use]
    pub fn add(&mut self, token: &str, scopes: Scopes) -> bool {
        if self.find(token).is_some() {
            return false;
        }
        self.known.push(Known { digest: digest_of(token), scopes });
        true
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// What the token allows, if it is known.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<&Scopes> {
        let wanted = digest_of(token);
        let mut found = u64::MAX;
        for (place, known) in (0u64..).zip(&self.known) {
            found.conditional_assign(&place, known.digest.ct_eq(&wanted));
        }
        self.known.get(usize::try_from(found).ok()?).map(|known| &known.scopes)
    }
}

fn digest_of(token: &str) -> [u8; SHA256_OUTPUT_LEN] {
    let mut bytes = [0; SHA256_OUTPUT_LEN];
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticTokens({})", self.known.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(text: &str) -> Scopes {
        Scopes::new(&text.into()).unwrap()
    }

    #[test]
    fn finds_each_token_and_no_other() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.is_empty());
        for name in ["first", "second", "third"] {
            assert!(tokens.add(name, scopes(&format!("publish:{name}"))));
        }
        assert!(!tokens.is_empty());
        for name in ["first", "second", "third"] {
            assert_eq!(tokens.find(name), Some(&scopes(&format!("publish:{name}"))));
        }
        for other in ["", "firs", "first ", "First", "fourth", "secondthird"] {
            assert_eq!(tokens.find(other), None, "{other}");
        }
    }

    #[test]
    fn a_token_is_added_once() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.add("one", scopes("admin")));
        assert!(!tokens.add("one", scopes("publish:**")));
        assert_eq!(tokens.find("one"), Some(&scopes("admin")));
    }

    #[test]
    fn shows_neither_tokens_nor_digests() {
        let mut tokens = StaticTokens::default();
        assert!(tokens.add("one", scopes("admin")));
        assert_eq!(format!("{tokens:?}"), "StaticTokens(1)");
    }
}
