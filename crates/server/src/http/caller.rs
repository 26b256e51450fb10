//! Who a request counts for when callers share something.

use std::hash::{BuildHasher, RandomState};

use crate::auth::Grant;
use crate::client_network::ClientNetwork;

/// The owner of a token, or where the request comes from if the server has no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    /// The hash of a token, or of the subject it was issued to.
    Token(u64),
    Network(ClientNetwork),
}

impl Caller {
    /// The caller with a valid token.
    pub(super) fn with_token(token: &str, grant: &Grant, hasher: &RandomState) -> Self {
        // A subject may have any number of tokens.
        Self::Token(match &grant.subject {
            Some(subject) => hasher.hash_one(("subject", subject)),
            None => hasher.hash_one(("token", token)),
        })
    }
}
