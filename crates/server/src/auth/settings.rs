//! The `auth` section of the configuration.

use std::path::PathBuf;

use serde::Deserialize;
use thiserror::Error;

use super::scope::{InvalidRule, ScopeList};
use super::secret::Secret;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    pub tokens: Vec<TokenSettings>,
    pub certificates: Vec<CertificateSettings>,
    pub jwt: Option<JwtSettings>,
}

/// An entry of `auth.tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    pub token: Secret,
    pub scopes: ScopeList,
}

/// An entry of `auth.certificates`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateSettings {
    /// A name in the certificate: `CN=…`, `DNS=…` or `URI=…`.
    pub subject: String,
    pub scopes: ScopeList,
}

/// The section `auth.jwt`. At least one of the three key sources must be set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JwtSettings {
    /// Shared secret for HS256.
    pub secret: Option<Secret>,
    /// PEM file with an RSA (RS256) or Ed25519 (EdDSA) public key.
    pub public_key_file: Option<PathBuf>,
    /// A JSON Web Key Set.
    pub jwks_file: Option<PathBuf>,
    /// Required value of the claim `iss`.
    pub issuer: Option<String>,
    /// The claim `aud` must be or contain this.
    pub audience: Option<String>,
}

#[derive(Debug, Error)]
pub enum AuthSetupError {
    #[error("auth.tokens[{0}].token is empty")]
    EmptyToken(usize),
    #[error("auth.tokens[{0}].token is listed twice; list a token once, with all its scopes")]
    RepeatedToken(usize),
    #[error("auth.tokens[{index}].scopes: {reason}")]
    BadScope { index: usize, reason: InvalidRule },
    #[error("auth.certificates[{0}].subject must be CN=…, DNS=… or URI=…")]
    BadSubject(usize),
    #[error("auth.certificates[{0}].subject is listed twice; list it once, with all its scopes")]
    RepeatedSubject(usize),
    #[error("auth.certificates[{index}].scopes: {reason}")]
    BadCertificateScope { index: usize, reason: InvalidRule },
    #[error("auth.jwt needs a key: set secret, public_key_file or jwks_file")]
    NoKey,
    #[error("auth.jwt.secret is empty")]
    EmptySecret,
    #[error("auth.jwt.{setting}: cannot read {}: {reason}", file.display())]
    UnreadableFile { setting: &'static str, file: PathBuf, reason: std::io::Error },
    #[error("auth.jwt.{setting}: {}: {reason}", file.display())]
    BadKeyFile { setting: &'static str, file: PathBuf, reason: super::jwt::BadKey },
}
