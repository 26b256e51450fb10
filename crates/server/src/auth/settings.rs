//! Who may do what, as configured under `auth`.

use std::path::PathBuf;

use serde::Deserialize;
use thiserror::Error;

use super::scope::{InvalidRule, ScopeWords};
use super::secret::Secret;

/// The section `auth`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// Tokens and what each allows.
    pub tokens: Vec<TokenSettings>,
    /// Signed tokens.
    pub jwt: Option<JwtSettings>,
}

/// One of `auth.tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    /// What the client sends.
    pub token: Secret,
    /// What it allows, in order.
    pub scopes: ScopeWords,
}

/// The section `auth.jwt`: at least one of the three keys, and what the tokens have to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JwtSettings {
    /// Shared secret of HS256 tokens.
    pub secret: Option<Secret>,
    /// PEM file with an RSA key (RS256) or an Ed25519 key (EdDSA).
    pub public_key_file: Option<PathBuf>,
    /// File with a JSON Web Key Set.
    pub jwks_file: Option<PathBuf>,
    /// What the claim `iss` has to be.
    pub issuer: Option<String>,
    /// What the claim `aud` has to be or contain.
    pub audience: Option<String>,
}

/// Settings that cannot be used.
#[derive(Debug, Error)]
pub enum AuthSetupError {
    /// A token of no characters would let everybody in.
    #[error("auth.tokens[{0}].token is empty")]
    EmptyToken(usize),
    /// Which of the two scopes would count?
    #[error("auth.tokens[{0}].token stands in the list before; a token has one list of scopes")]
    RepeatedToken(usize),
    /// A scope that is none.
    #[error("auth.tokens[{index}].scopes: {reason}")]
    BadScope {
        /// Which token, from 0.
        index: usize,
        /// What is wrong with it.
        reason: InvalidRule,
    },
    /// Nothing to check signatures with.
    #[error("auth.jwt needs a key: set secret, public_key_file or jwks_file")]
    NoKey,
    /// A secret of no characters is known to everybody.
    #[error("auth.jwt.secret is empty")]
    EmptySecret,
    /// A file that cannot be read.
    #[error("auth.jwt.{setting}: cannot read {}: {reason}", file.display())]
    UnreadableFile {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        file: PathBuf,
        /// What the operating system says.
        reason: std::io::Error,
    },
    /// A file with something else in it.
    #[error("auth.jwt.{setting}: {}: {reason}", file.display())]
    BadKeyFile {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: super::jwt::BadKey,
    },
}
